"""nginx before a hub, with `location` and `server` as its users write them."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.helpers.certificates import Certificate
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


_OF_THE_NAME = re.compile(r"^ *(listen|server_name|ssl_\w+) .*$", re.MULTILINE)


def plain(server: str) -> str:
    """What a server block of a page does with requests, without its address and its certificate."""
    return _OF_THE_NAME.sub("", server.strip().removeprefix("server {").removesuffix("}"))


def refusal_of(folder: Path, server: str, certificate: Certificate) -> str:
    """What nginx has against a whole server block. Empty: nothing."""
    folder.mkdir()
    for name, path in (("ssl_certificate", certificate.cert), ("ssl_certificate_key", certificate.key)):
        server = re.sub(rf"({name}) +\S+;", rf"\1 {path};", server)
    config = folder / "nginx.conf"
    config.write_text(f"pid {folder}/nginx.pid;\nevents {{}}\nhttp {{\n{server}\n}}\n")
    argv = [str(nginx()), "-t", "-q", "-c", str(config), "-e", str(folder / "error.log")]
    return subprocess.run(argv, capture_output=True, text=True, check=False).stderr


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
