"""How to call a function, determined once when it becomes a task.

A task takes `()`, `(payload)` or `(payload, helpers)`; if its only parameter is annotated `JobHelpers`, it
gets the helpers alone. Keyword-only parameters are injected by their type. Other functions are refused here,
with file and line, not when the first job runs.
"""

from __future__ import annotations

import functools
import inspect
import sys
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, Literal

import msgspec

from ..errors import TaskLoadError
from .helpers import JobHelpers
from .injection import injected_parameters

Shape = Literal["nothing", "payload", "payload and helpers", "helpers"]

ALLOWED = "a task takes (), (payload) or (payload, helpers)"
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class CallSignature(msgspec.Struct, frozen=True):
    """What to pass to the function, and the unresolved annotations of the payload and the result."""

    shape: Shape
    is_async: bool
    annotation: Any
    returns: Any = Any
    injected: tuple[inspect.Parameter, ...] = ()
    """Parameters that are filled by their type."""

    @property
    def takes(self) -> int:
        """The number of arguments."""
        return {"nothing": 0, "payload": 1, "helpers": 1, "payload and helpers": 2}[self.shape]


def read_signature(function: Callable[..., Any]) -> CallSignature:
    """Determine how to call `function`; TaskLoadError if it cannot be a task."""
    check_is_function(function)
    signature = _signature(function)
    positional, takes_more = _positional_parameters(signature)
    shape = _shape(function, positional, takes_more)
    annotation: Any = Any
    if shape in ("payload", "payload and helpers") and positional:
        annotation = positional[0].annotation
        if annotation is inspect.Parameter.empty:
            annotation = Any
    injected = _injected_parameters(function, signature)
    returns = signature.return_annotation
    if returns is signature.empty:
        returns = Any
    return CallSignature(shape, is_coroutine_function(function), annotation, returns, injected)


def check_is_function(function: object) -> None:
    """Raise TaskLoadError for classes, generators and objects that cannot be called."""
    if isinstance(function, type):
        raise load_error(
            function,
            f"the class {function.__name__} cannot be a task; use a function, or an instance with __call__",
        )
    if not callable(function):
        raise TaskLoadError(f"expected a function, got {function!r}; {ALLOWED}")
    target = innermost(function)
    if inspect.isgeneratorfunction(target) or inspect.isasyncgenfunction(target):
        raise load_error(
            function,
            f"{name_of(function)} is a generator, so calling it would run nothing; "
            "remove the yield, or collect the values and return",
        )


def is_coroutine_function(function: Callable[..., Any]) -> bool:
    """Whether calling it returns a coroutine; unwraps partial objects, methods and __call__."""
    while isinstance(function, functools.partial):
        function = function.func
    if inspect.iscoroutinefunction(function):
        return True
    return not inspect.isroutine(function) and inspect.iscoroutinefunction(type(function).__call__)


def resolve_annotation(
    function: Callable[..., Any], annotation: Any, local_names: Mapping[str, Any] | None = None
) -> Any:
    """The annotation as a type: strings and forward references are resolved in the function's module.

    Only this one is resolved, so that `JobHelpers` may be imported under TYPE_CHECKING.
    """
    if annotation is Any or type(annotation) is type:
        return annotation
    holder = types.SimpleNamespace(__annotations__={"payload": annotation})
    names = getattr(innermost(function), "__globals__", {})
    return typing.get_type_hints(holder, names, local_names, include_extras=True)["payload"]


def unresolved(function: Callable[..., Any], annotation: Any, error: Exception) -> TaskLoadError:
    """The error for an annotation with a name that does not exist at run time."""
    text = annotation if isinstance(annotation, str) else getattr(annotation, "__forward_arg__", annotation)
    return load_error(
        function,
        f"{name_of(function)}: the payload's annotation {text!r} cannot be resolved ({error}); import it at "
        "the top of the module (not only under TYPE_CHECKING), or annotate with a type that is defined there",
    )


def innermost(function: Any) -> Any:
    """The plain function below partial objects, bound methods, wrappers and callable objects."""
    while True:
        if isinstance(function, functools.partial):
            function = function.func
        elif inspect.ismethod(function):
            function = function.__func__
        elif (wrapped := getattr(function, "__wrapped__", None)) is not None:
            function = wrapped
        elif not inspect.isroutine(function) and inspect.isfunction(type(function).__call__):
            function = type(function).__call__
        else:
            return function


def place_of(function: Any) -> tuple[str | None, int | None]:
    """File and line of a function or class, if known."""
    code = getattr(innermost(function), "__code__", None)
    if code is not None:
        return code.co_filename, code.co_firstlineno
    try:
        return inspect.getsourcefile(function), inspect.getsourcelines(function)[1]
    except (TypeError, OSError):
        return None, None


def name_of(function: Any) -> str:
    """The function's name, for messages."""
    while isinstance(function, functools.partial):
        function = function.func
    return getattr(function, "__name__", None) or type(function).__name__


def load_error(function: Any, message: str) -> TaskLoadError:
    """A TaskLoadError with the file and line of the function."""
    path, line = place_of(function)
    return TaskLoadError(message, path=path, line=line)


def _positional_parameters(signature: inspect.Signature) -> tuple[list[inspect.Parameter], bool]:
    """The positional parameters, and whether there is `*args`."""
    parameters = signature.parameters.values()
    positional = [parameter for parameter in parameters if parameter.kind in _POSITIONAL]
    return positional, any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters)


def _injected_parameters(
    function: Callable[..., Any], signature: inspect.Signature
) -> tuple[inspect.Parameter, ...]:
    injected = injected_parameters(signature.parameters.values())
    for parameter in injected:
        if parameter.annotation is parameter.empty:
            raise load_error(
                function,
                f"{name_of(function)} requires the keyword argument {parameter.name!r}; annotate it with the "
                "type of an extension of the worker, or give it a default",
            )
    return injected


def _signature(function: Callable[..., Any]) -> inspect.Signature:
    try:
        return _read(function)
    except (TypeError, ValueError):
        raise load_error(
            function, f"the signature of {function!r} cannot be read; wrap it in a def"
        ) from None


def _read(function: Callable[..., Any]) -> inspect.Signature:
    if sys.version_info >= (3, 14):  # annotations are evaluated lazily there; names may not exist yet
        import annotationlib

        return inspect.signature(function, annotation_format=annotationlib.Format.FORWARDREF)
    return inspect.signature(function)


def _shape(function: Callable[..., Any], positional: list[inspect.Parameter], takes_more: bool) -> Shape:
    if _is_unbound_method(function, positional):
        raise load_error(
            function,
            f"{name_of(function)} is a method without its object; make the bound method a task instead: "
            "task(instance.method)",
        )
    required = [parameter for parameter in positional if parameter.default is parameter.empty]
    if len(required) > 2:
        names = ", ".join(parameter.name for parameter in required)
        raise load_error(
            function, f"{name_of(function)} requires {len(required)} arguments ({names}); {ALLOWED}"
        )
    if not positional:
        return "payload and helpers" if takes_more else "nothing"
    if len(positional) > 1 and _takes_helpers_first(positional, is_required=len(required) == 2):
        raise load_error(
            function, f"{name_of(function)} takes the helpers first; the order is (payload, helpers)"
        )
    if _is_helpers(positional[0].annotation):
        return "helpers"
    if len(required) == 2 or takes_more or (len(positional) > 1 and _wants_helpers(positional[1])):
        return "payload and helpers"
    return "payload"


def _takes_helpers_first(positional: list[inspect.Parameter], *, is_required: bool) -> bool:
    """By the annotation of the first parameter, or by the names of both; `is_required`: the second is."""
    first, second = positional[:2]
    if _is_helpers(second.annotation):
        return False
    is_swapped = (first.name, second.name) == ("helpers", "payload")
    if first.annotation is first.empty:
        return is_swapped
    return _is_helpers(first.annotation) and (is_required or is_swapped)


def _wants_helpers(parameter: inspect.Parameter) -> bool:
    """Whether an optional second parameter is for the helpers, and not a default of the user's own."""
    return parameter.name == "helpers" or _is_helpers(parameter.annotation)


def _is_helpers(annotation: Any) -> bool:
    if annotation is JobHelpers:
        return True
    text = getattr(annotation, "__forward_arg__", annotation)
    return isinstance(text, str) and text.strip("'\" ").rpartition(".")[2] == "JobHelpers"


def _is_unbound_method(function: Any, positional: list[inspect.Parameter]) -> bool:
    if not positional or positional[0].name not in ("self", "cls") or not inspect.isfunction(function):
        return False
    scope = function.__qualname__.rpartition(".")[0]
    return bool(scope) and not scope.endswith("<locals>")
