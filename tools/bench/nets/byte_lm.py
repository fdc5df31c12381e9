"""The language model of bytes that is byte_lm.pbtxt.in: its parameters, and its net with sizes filled in."""
from pathlib import Path

VOCABULARY, EMBEDDING = 256, 64


def shapes(hidden):
    shape = {"embedding": (VOCABULARY, EMBEDDING), "W_out": (VOCABULARY, hidden), "b_out": (VOCABULARY,)}
    for layer, inputs in enumerate((EMBEDDING, hidden)):
        shape[f"W_x_{layer}"] = (4 * hidden, inputs)
        shape[f"W_h_{layer}"] = (4 * hidden, hidden)
        shape[f"b_x_{layer}"] = shape[f"b_h_{layer}"] = (4 * hidden,)
    return shape


def operator(kind, output, arguments):
    arguments = " ".join(f'arg {{ name: "{name}" {value} }}' for name, value in arguments.items())
    return f'op {{ type: "{kind}" output: "{output}" {arguments} }}\n'


def drawn(hidden):
    """The operators that draw the parameters as PyTorch's LSTM does."""
    bound = hidden ** -0.5
    return "".join(operator("UniformFill", name, {"shape": " ".join(f"ints: {size}" for size in shape),
                                                  "min": f"f: {-bound}", "max": f"f: {bound}"})
                   for name, shape in shapes(hidden).items())


def net(timesteps, batch, hidden, init):
    text = Path(__file__).with_name("byte_lm.pbtxt.in").read_text(encoding="utf-8")
    for name, value in (("T", timesteps), ("B", batch), ("H", hidden), ("init", init)):
        text = text.replace(f"${{{name}}}", str(value))
    return text
