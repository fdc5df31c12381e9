"""The Hessian of tools/bench/tape/hessian.h in JAX, compiled: vmap(hessian), which is jacfwd(jacrev). With ReLU
it finds that the Hessian is zero, and computes the value and the first derivatives alone."""
import functools
import os

import coprocess

arguments = coprocess.parse_arguments()
if arguments.device == "cpu":
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")
else:  # there are others on the device
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import jax
import jax.numpy as jnp


def uniform(key, shape, scale):
    return jax.random.uniform(jax.random.PRNGKey(key), shape, minval=-scale, maxval=scale)


def apply(activation, parameters, x):
    for i, (w, b) in enumerate(parameters):
        x = w @ (activation(x) if i > 0 else x) + b
    return x[0]


def value_and_hessian(activation, parameters, x):
    """The value comes out as an auxiliary output, so that the net runs forward once."""
    def gradient(x):
        value, gradient = jax.value_and_grad(apply, argnums=2)(activation, parameters, x)
        return gradient, (value, gradient)

    hessian, (value, first) = jax.jacfwd(gradient, has_aux=True)(x)
    return value, first, hessian


def make(job):
    parameters = []
    for i, (rows, columns) in enumerate(coprocess.layer_sizes(job)):
        scale = 1.5 / columns**0.5
        parameters.append((uniform(2 * i + 1, (rows, columns), scale), uniform(2 * i + 2, (rows,), scale)))
    batch = uniform(0, (job.batch, job.inputs), 1)
    activation = {"relu": jax.nn.relu, "tanh": jnp.tanh}[job.activation]
    hessians = jax.vmap(functools.partial(value_and_hessian, activation), (None, 0))

    def loss(parameters, batch):
        value, _, hessian = hessians(parameters, batch)
        return jnp.sum(value**2) + jnp.sum(hessian**2)

    run = jax.jit(jax.grad(loss, (0, 1)) if job.with_backward else hessians)
    jax.block_until_ready(run(parameters, batch))
    return lambda: jax.block_until_ready(run(parameters, batch))


def main():
    if arguments.device == "cpu":
        coprocess.serve(make)
        return
    assert jax.default_backend() == "gpu", "JAX finds no GPU"
    jax.config.update("jax_default_matmul_precision", "tensorfloat32" if arguments.tf32 else "highest")
    coprocess.serve(make, lambda: None)  # what is timed waits for the device


if __name__ == "__main__":
    main()
