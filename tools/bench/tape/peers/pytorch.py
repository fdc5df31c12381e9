"""The Hessian of tools/bench/tape/hessian.h in PyTorch. Methods: trimmed and untrimmed, row by row, where untrimmed asks
for the gradients of the parameters too; and func, which is vmap(jacfwd(jacrev)) of torch.func or of functorch."""
import torch
import torch.nn.functional as F

import coprocess

try:
    from torch import func
except ImportError:
    try:
        import functorch as func
    except ImportError:
        func = None


class Mlp:
    def __init__(self, job):
        self.activation = getattr(torch, job.activation)
        self.weights, self.biases = [], []
        for rows, columns in coprocess.layer_sizes(job):
            scale = 1.5 / columns**0.5
            self.weights.append(torch.empty(rows, columns).uniform_(-scale, scale).requires_grad_())
            self.biases.append(torch.empty(rows).uniform_(-scale, scale).requires_grad_())
        self.x = torch.empty(job.batch, job.inputs).uniform_(-1, 1).requires_grad_()
        self.seeds = [self.seed(column) for column in range(-1, job.inputs)] if self.x.is_cuda else None

    def seed(self, column):
        """Ones for the value's gradient, if column is -1, or for that of one input; on a GPU made once."""
        if column < 0:
            return torch.ones(len(self.x), 1)
        ones = torch.zeros_like(self.x)
        ones[:, column] = 1
        return ones

    def leaves(self):
        return [self.x] + self.weights + self.biases

    def __call__(self, x):
        for i, (w, b) in enumerate(zip(self.weights, self.biases)):
            x = F.linear(self.activation(x) if i > 0 else x, w, b)
        return x


def differentiate_loss(net, value, rows):
    for leaf in net.leaves():
        leaf.grad = None
    loss = value.square().sum()
    for row in rows:
        loss = loss + row.square().sum()
    loss.backward()


def by_rows(net, job):
    wanted = [net.x] if job.trimmed else net.leaves()
    seed = (lambda column: net.seeds[column + 1]) if net.seeds else net.seed
    value = net(net.x)
    gradient = torch.autograd.grad(value, wanted, seed(-1), create_graph=True)[0]
    rows = []
    for i in range(job.inputs):
        keep = job.with_backward or i + 1 < job.inputs
        rows.append(torch.autograd.grad(gradient, wanted, seed(i), retain_graph=keep, create_graph=job.with_backward,
                                        allow_unused=not job.trimmed)[0])
    if job.with_backward:
        differentiate_loss(net, value, rows)
    return value, rows


def by_func(net, job):
    """The value comes out of the inner transform as an auxiliary output, so that the net runs forward once."""
    def value_of(x):
        y = net(x)[0]
        return y, y

    def gradient_and_value(x):
        gradient, value = func.jacrev(value_of, has_aux=True)(x)
        return gradient, value

    if job.with_backward:
        hessian, value = func.vmap(func.jacfwd(gradient_and_value, has_aux=True))(net.x)
        differentiate_loss(net, value, [hessian])
    else:
        with torch.no_grad():
            hessian, value = func.vmap(func.jacfwd(gradient_and_value, has_aux=True))(net.x)
    return value, hessian


def make(job):
    net = Mlp(job)
    if job.method == "func":
        assert func is not None, "neither torch.func nor functorch is here"
        return lambda: by_func(net, job)
    return lambda: by_rows(net, job)


def main():
    arguments = coprocess.parse_arguments()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    if arguments.device == "cpu":
        coprocess.serve(make)
        return
    torch.set_default_device("cuda")
    torch.backends.cuda.matmul.allow_tf32 = arguments.tf32
    coprocess.serve(make, torch.cuda.synchronize)


if __name__ == "__main__":
    main()
