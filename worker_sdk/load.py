"""Find a worker by `module:name`."""

from __future__ import annotations

import importlib
import os
import sys

from worker_sdk.errors import ConfigError
from worker_sdk.worker import Worker, not_running


def load_worker(target: str) -> Worker:
    """`module:name`, or `module` for its `worker`. The current directory comes first on the path. ConfigError if not found.
    A `worker.run()` at the end of the module returns at once: the code that loads a worker runs it.

    An exception of the module itself propagates unchanged, because its author needs the traceback.
    """
    module_name, _, name = target.partition(":")
    name = name or "worker"
    module_name = module_name.removesuffix(".py").replace("/", ".")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        with not_running():
            module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not (module_name == error.name or module_name.startswith(error.name + ".")):
            raise
        raise ConfigError(f"There is no module {module_name!r} in {os.getcwd()} or on the Python path.") from error
    found = getattr(module, name, None)
    if isinstance(found, Worker):
        return found
    workers = [key for key, value in vars(module).items() if isinstance(value, Worker)]
    if found is not None:
        raise ConfigError(f"{module_name}:{name} is a {type(found).__name__}, not a Worker.")
    found_names = f" It has: {', '.join(f'{module_name}:{key}' for key in workers)}." if workers else ""
    raise ConfigError(f"{module_name} has no {name!r}.{found_names}")
