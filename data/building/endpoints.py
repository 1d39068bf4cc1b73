"""Check that the cluster named in --beam_args answers, because Beam would wait for it forever."""

import re
import socket
from typing import TYPE_CHECKING

from albert_tf.runtime.errors import InputError, MachineError

if TYPE_CHECKING:
    import apache_beam as beam

TIMEOUT_S = 20.0

_DASK = "address"  # without TLS, its scheduler says something as soon as there is a connection
# Beam's options that name a server which this command talks to, by their flags.
_SERVERS = {
    "job_endpoint": "--job_endpoint",
    "flink_master": "--flink_master",
    "spark_master_url": "--spark_master_url",
    _DASK: "--dask_client_address",
}
_WORKERS = "environment_config"  # with EXTERNAL: where each worker finds its pool of processes
_ADDRESS = re.compile(r"(?:\w+:///?)?(?P<host>[\w.-]+|\[[\da-fA-F:.]+\]):(?P<port>\d+)/?")
_ALWAYS_ADDRESSES = ("job_endpoint", _DASK)  # the others may name a cluster in other ways
_HERE = ("localhost", "127.0.0.1")


def require_answers(
    options: "beam.options.pipeline_options.PipelineOptions", timeout_s: float = TIMEOUT_S
) -> None:
    """Connect to each server that Beam's `options` name.

    Raises:
      InputError: a value is no address.
      MachineError: one of them does not answer within `timeout_s` seconds.
    """
    values = options.get_all_options()
    addresses = {name: _address(values.get(name)) for name in (*_SERVERS, _WORKERS)}
    for name, flag in _SERVERS.items():
        if name in _ALWAYS_ADDRESSES and values.get(name) and not addresses[name]:
            raise InputError(
                f"{flag} in --beam_args must be HOST:PORT. Received: {values[name]!r}."
            )
        if address := addresses[name]:
            speaks_first = name == _DASK and not values[name].startswith("tls:")
            _connect(flag, *address, timeout_s, speaks_first)
    if address := addresses["job_endpoint"]:
        _call("--job_endpoint", *address, timeout_s)
        workers = addresses[_WORKERS]
        # `localhost` is this machine only if the job service, too, runs on it.
        if workers and (workers[0] not in _HERE or address[0] in _HERE):
            _connect("--environment_config", *workers, timeout_s)


def _address(value: str | None) -> tuple[str, int] | None:
    match = _ADDRESS.fullmatch(value) if isinstance(value, str) else None
    return (match["host"], int(match["port"])) if match else None


def _connect(flag: str, host: str, port: int, timeout_s: float, speaks_first: bool = False) -> None:
    try:
        with socket.create_connection((host.strip("[]"), port), timeout_s) as connection:
            if speaks_first and not connection.recv(1):
                raise ConnectionError("connection closed")
    except (OSError, OverflowError) as error:
        raise _no_answer(flag, host, port, str(error)) from None


def _call(flag: str, host: str, port: int, timeout_s: float) -> None:
    import grpc

    with grpc.insecure_channel(f"{host}:{port}") as channel:
        try:
            grpc.channel_ready_future(channel).result(timeout_s)
        except grpc.FutureTimeoutError:
            reason = f"no gRPC within {timeout_s:g} s"
            raise _no_answer(flag, host, port, reason) from None


def _no_answer(flag: str, host: str, port: int, reason: str) -> MachineError:
    return MachineError(
        f"no server answers at {flag} in --beam_args: {host}:{port} ({reason}). Start it, or "
        "correct the address, and run the same command again."
    )
