"""The package has its stubs, which say all that its extension has."""

import ast
import pathlib

import stepnet
from stepnet import _native

FOLDER = pathlib.Path(stepnet.__file__).parent


def names_in(body):
    for node in body:
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
            yield node.name
        elif isinstance(node, ast.AnnAssign):
            yield node.target.id
        elif isinstance(node, ast.Assign):
            yield from (target.id for target in node.targets)


def test_stubs_have_all_that_the_extension_has():
    assert (FOLDER / "py.typed").exists()
    stub = ast.parse((FOLDER / "_native.pyi").read_text(encoding="utf-8"))
    said = set(names_in(stub.body))
    assert {name for name in dir(_native) if not name.startswith("_")} <= said
    classes = {node.name: set(names_in(node.body)) for node in stub.body if isinstance(node, ast.ClassDef)}
    for name in ("Net", "Workspace", "Tensor", "Variable"):
        own = {member for member in vars(getattr(_native, name)) if not member.startswith("_")}
        assert own <= classes[name]


def test_all_that_is_exported_is_there():
    assert sorted(stepnet.__all__) == list(stepnet.__all__)
    assert all(hasattr(stepnet, name) for name in stepnet.__all__)
