"""nginx before a hub, with one `location` as its users write it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.helpers.processes import Process, free_port, status_of
from tests.helpers.tools import nginx

_CONFIG = """\
worker_processes 1;
daemon off;
{user}pid {folder}/nginx.pid;
events {{ worker_connections 256; }}
http {{
  access_log off;
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  server {{
    listen 127.0.0.1:{port};
    {location}
  }}
}}
"""


@contextmanager
def nginx_before(folder: Path, location: str, hub_port: int) -> Iterator[str]:
    """The URL of an nginx; the location names the hub as 127.0.0.1:8420."""
    program, port = nginx(), free_port()
    folder.mkdir()
    user = "user root;\n" if os.geteuid() == 0 else ""
    config = folder / "nginx.conf"
    location = location.replace("127.0.0.1:8420", f"127.0.0.1:{hub_port}")
    config.write_text(_CONFIG.format(user=user, folder=folder, port=port, location=location))
    with Process([program, "-c", config, "-e", folder / "error.log"], log=folder / "nginx.log") as process:
        process.wait_until(lambda: status_of(f"http://127.0.0.1:{port}/livez") != 0)
        yield f"http://127.0.0.1:{port}"
