"""Training and reports from Python."""

import numpy as np
import pytest

import stepnet
from stepnet import ops

MODEL = """
  op { type: "FC" input: "size" input: "W" input: "b" output: "guess" }
  op { type: "MSELoss" input: "guess" input: "weight" output: "loss" }
  [stepnet.model] {
    init {
      op { type: "XavierFill" output: "W" arg { name: "shape" ints: 1 ints: 2 } }
      op { type: "ConstantFill" output: "b" arg { name: "shape" ints: 1 } }
    }
    loss: "loss"
    data { column: "size" }
    data { column: "weight" }
    metric { name: "mean_absolute_error" prediction: "guess" target: "weight" }
  }
"""


@pytest.fixture
def data(rng):
    size = rng.normal(size=(100, 2)).astype("float32")
    return {"size": size, "weight": size @ np.array([[1.0], [2.0]], dtype="float32")}


def test_training_evaluation_and_prediction(tmp_path, data):
    seen, validations, notes = [], [], []
    result = stepnet.train(
        MODEL,
        data=data,
        epochs=20,
        lr=0.05,
        batch=10,
        out=tmp_path / "run",
        on_iteration=seen.append,
        on_validation=validations.append,
        on_note=notes.append,
    )
    assert result.finished and result.iteration == result.total == len(seen) == 200
    assert validations[-1].loss < validations[0].loss
    found = stepnet.evaluate(data, out=tmp_path / "run")
    assert found["samples"] == 100 and found["loss"] < 0.01
    guess = stepnet.predict({"size": data["size"]}, "guess", out=tmp_path / "run")["guess"]
    np.testing.assert_allclose(np.mean(np.abs(guess - data["weight"])), found["mean_absolute_error"], rtol=1e-4)
    held_out = stepnet.evaluate(data, out=tmp_path / "run", holdout=0.2)
    assert held_out["samples"] == 20
    np.testing.assert_allclose(
        np.mean(np.abs(guess - data["weight"])[-20:]), held_out["mean_absolute_error"], rtol=1e-4
    )


def test_another_net_has_the_runs_parameters(tmp_path, data):
    stepnet.train(MODEL, data=data, iterations=20, out=tmp_path / "run")
    add = 'op { type: "Add" input: "guess" input: "guess" output: "twice" }'
    twice = MODEL.replace("[stepnet.model]", add + "[stepnet.model]")
    size = {"size": data["size"]}
    guess = stepnet.predict(size, "guess", out=tmp_path / "run")["guess"]
    np.testing.assert_array_equal(stepnet.predict(size, "twice", net=twice, out=tmp_path / "run")["twice"], 2 * guess)
    assert stepnet.evaluate(data, net=twice, out=tmp_path / "run") == stepnet.evaluate(data, out=tmp_path / "run")
    with pytest.raises(stepnet.Error, match='no parameter "V"'):
        stepnet.predict(size, "guess", net=MODEL.replace('"W"', '"V"'), out=tmp_path / "run")


def test_the_same_seed_gives_the_same_bits(data):
    losses = [stepnet.train(MODEL, data=data, iterations=20, seed=s).loss for s in (1, 1, 2)]
    assert losses[0] == losses[1] != losses[2]


def test_what_a_function_raises_ends_the_run(data):
    def fails(_):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        stepnet.train(MODEL, data=data, iterations=100, on_iteration=fails)


def test_options_are_checked(data):
    with pytest.raises(stepnet.Error, match='Did you mean "lr"|no option "lrr"'):
        stepnet.train(MODEL, data=data, lrr=1)
    with pytest.raises(stepnet.Error, match="iterations"):
        stepnet.train(MODEL, data=data, iterations="many")
    with pytest.raises(stepnet.Error, match="adamm"):
        stepnet.train(MODEL, data=data, iterations=1, optimizer="adamm")
    with pytest.raises(stepnet.Error, match="which parameters"):
        stepnet.evaluate(data)
    with pytest.raises(TypeError):
        stepnet.estimate(MODEL, nonsense=1)


def test_estimates(data):
    found = stepnet.estimate(MODEL, train=True, feeds=data)
    assert found["peak"] > 0 and len(found["operators"]) > 2


def test_gradient_checks(rng):
    text = 'op { type: "Tanh" input: "x" output: "y" }'
    report = stepnet.gradcheck(text, {"x": rng.normal(size=(2, 3))}, loss="y", order=2)
    assert report and report.report["rows"]
    with pytest.raises(stepnet.Error, match='no blob "z"'):
        stepnet.gradcheck(text, {"x": np.ones(2), "z": np.ones(2)}, loss="y")


def test_pictures():
    text = 'op { type: "Tanh" input: "x" output: "y" }'
    assert stepnet.draw(text).startswith("digraph")
    assert "TanhGradient" in stepnet.draw(text, loss="y") and "float[2, 3]" in stepnet.draw(text, feeds={"x": "float[2,3]"})


def test_notebooks_show_pictures(tmp_path, monkeypatch):
    text = 'op { type: "Tanh" input: "x" output: "y" }'
    monkeypatch.setenv("PATH", str(tmp_path))
    assert stepnet.draw(text)._repr_svg_() is None
    dot = tmp_path / "dot"
    dot.write_text('#!/bin/sh\n[ "$*" = -Tsvg ] || exit 1\necho "<svg>"\nread -r first\necho "$first"\n')
    dot.chmod(0o755)
    for picture in (stepnet.draw(text), stepnet.Net(text)):
        assert picture._repr_svg_().startswith("<svg>\ndigraph")


@stepnet.cell
def reader(x, h, U):
    return ops.Tanh(x + ops.FC(h, U, axis=2))


READER = f"""
  op {{ type: "Gather" input: "table" input: "letter" output: "x" }}
  {reader.operator()}
  op {{ type: "FC" input: "h_all" input: "V" input: "d" output: "scores" arg {{ name: "axis" i: 2 }} }}
  op {{ type: "SoftmaxWithLoss" input: "scores" input: "next" output: "p" output: "loss" arg {{ name: "axis" i: 2 }} }}
  [stepnet.model] {{
    init {{
      op {{ type: "GaussianFill" output: "table" arg {{ name: "shape" ints: 256 ints: 16 }} }}
      op {{ type: "XavierFill" output: "U" arg {{ name: "shape" ints: 16 ints: 16 }} }}
      op {{ type: "XavierFill" output: "V" arg {{ name: "shape" ints: 256 ints: 16 }} }}
      op {{ type: "ConstantFill" output: "d" arg {{ name: "shape" ints: 256 }} }}
    }}
    loss: "loss" input: "letter" target: "next" logits: "scores" timesteps: 12 batch: 4
    carry {{ from: "h_last" to: "h0" size: 16 }}
  }}
"""


def test_models_of_text_write(tmp_path):
    (tmp_path / "text").write_text(400 * "abc")
    run = tmp_path / "run"
    stepnet.train(READER, text=tmp_path / "text", iterations=100, lr=0.02, out=run)
    assert stepnet.sample(out=run, prompt="ab", length=9, temperature=0.1) == b"cabcabcab"
    (best, score, log_probability), *others = stepnet.search(out=run, beams=3, prompt="ab", length=6)
    assert best == b"cabcab" and len(others) == 2 and -1 < log_probability < 0
    assert all(score >= other[1] for other in others)


def test_parameters_are_made(data):
    net = stepnet.Net(MODEL)
    net.make_parameters(seed=3)
    assert net.workspace["W"].shape == (1, 2)
    assert net(size=data["size"], weight=data["weight"])["loss"].shape == ()


def test_each_fold_is_held_out(tmp_path, data):
    for fold, samples in (("1/3", 34), ("2/3", 33), ("3/3", 33)):
        out = tmp_path / fold[0]
        result = stepnet.train(MODEL, data=data, epochs=2, batch=10, fold=fold, out=out)
        found = stepnet.evaluate(data, out=out, fold=fold)
        assert found["samples"] == samples
        np.testing.assert_allclose(found["loss"], result.best_loss, rtol=1e-5)
    with pytest.raises(stepnet.Error, match="no fold 4"):
        stepnet.evaluate(data, out=out, fold="4/3")
