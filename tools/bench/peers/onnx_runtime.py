"""Times ONNX Runtime's LSTM and GRU, forward. The model is made with the package onnx."""
import numpy
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

import timing

GATES = {"lstm": 4, "gru": 3}


def initializer(name, *shape, width):
    values = numpy.random.uniform(-1, 1, shape).astype(numpy.float32) / numpy.sqrt(width, dtype=numpy.float32)
    return numpy_helper.from_array(values, name)


def layer_nodes(cell, size, layer, source):
    """One layer: its node, and the one that drops the dimension of directions."""
    states = ["h0", "c0"] if cell == "lstm" else ["h0"]
    inputs = [source, f"W{layer}", f"R{layer}", f"B{layer}", ""] + [f"{state}_{layer}" for state in states]
    extra = {} if cell == "lstm" else {"linear_before_reset": 1}
    node = helper.make_node(cell.upper(), inputs, [f"y{layer}"], hidden_size=size.hidden, **extra)
    squeeze = helper.make_node("Squeeze", [f"y{layer}", "directions"], [f"h{layer}"])
    return [node, squeeze]


def layer_weights(cell, size, layer):
    rows, hidden = GATES[cell] * size.hidden, size.hidden
    inputs = size.inputs if layer == 0 else hidden
    states = ["h0", "c0"] if cell == "lstm" else ["h0"]
    return [
        initializer(f"W{layer}", 1, rows, inputs, width=hidden),
        initializer(f"R{layer}", 1, rows, hidden, width=hidden),
        initializer(f"B{layer}", 1, 2 * rows, width=hidden),
    ] + [initializer(f"{state}_{layer}", 1, size.batch, hidden, width=1) for state in states]


def make_model(cell, size):
    nodes, weights, source = [], [numpy_helper.from_array(numpy.array([1], numpy.int64), "directions")], "x"
    for layer in range(size.layers):
        nodes += layer_nodes(cell, size, layer, source)
        weights += layer_weights(cell, size, layer)
        source = f"h{layer}"
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [size.steps, size.batch, size.inputs])
    y = helper.make_tensor_value_info(source, TensorProto.FLOAT, [size.steps, size.batch, size.hidden])
    graph = helper.make_graph(nodes, cell, [x], [y], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8)


def make_session(model, arguments):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = arguments.threads
    options.inter_op_num_threads = 1
    spinning = "1" if arguments.waiting == "active" else "0"
    options.add_session_config_entry("session.intra_op.allow_spinning", spinning)
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def main():
    arguments = timing.parse_arguments("Times ONNX Runtime's recurrent operators.")
    if arguments.mode == "training":
        return
    numpy.random.seed(1)
    for cell, size in timing.wanted():
        if cell not in GATES:
            continue
        session = make_session(make_model(cell, size), arguments)
        feed = {"x": numpy.random.standard_normal((size.steps, size.batch, size.inputs)).astype(numpy.float32)}
        ms = timing.best_ms(lambda: session.run(None, feed), arguments)
        timing.report("onnxruntime", cell, size, "forward", arguments, ms)


if __name__ == "__main__":
    main()
