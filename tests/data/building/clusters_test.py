"""Beam's runners in processes of their own: the bytes of the local runner, and servers that do not
answer."""

import contextlib
import dataclasses
import os
import pathlib
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from albert_tf.runtime.errors import InputError, MachineError
from data import build as build_module
from data.build import build
from data.building import beam_runner, endpoints
from data.building.workers import Sizes
from data.records.manifest import Manifest
from tests.data.building.beam_test import build_both, options, texts  # noqa: F401

ROOT = pathlib.Path(build_module.__file__).parents[1]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def wait_for(port: int) -> None:
    end = time.monotonic() + 120
    while time.monotonic() < end:
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        time.sleep(0.1)
    raise TimeoutError(f"nothing listens on port {port}")


@contextlib.contextmanager
def started(module: str, *arguments: str) -> Iterator[subprocess.Popen]:
    """A process of Python that finds the checkout, and is killed at the end."""
    programs = f"{os.path.dirname(sys.executable)}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PATH": programs}
    command = [sys.executable, "-m", module, *arguments]
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.slow
def test_dask_without_one_of_its_workers_writes_the_same(options, tmp_path):  # noqa: F811
    """One of two worker processes is killed when the first shard appears."""
    pytest.importorskip("distributed")
    port = free_port()
    where, worker = f"tcp://127.0.0.1:{port}", ("--nthreads=1", "--no-nanny", "--no-dashboard")
    with contextlib.ExitStack() as stack:
        scheduler = ("--host=127.0.0.1", f"--port={port}", "--no-dashboard")
        stack.enter_context(started("distributed.cli.dask_scheduler", *scheduler))
        wait_for(port)
        workers = [
            stack.enter_context(started("distributed.cli.dask_worker", where, *worker))
            for _ in range(2)
        ]
        written: list[bool] = []

        def kill_one() -> None:
            while not any(tmp_path.glob("local_beam*/records-*")):
                time.sleep(0.01)
            written.append((tmp_path / "local_beam").exists())  # the whole, under its name
            workers[0].kill()

        killer = threading.Thread(target=kill_one, daemon=True)
        killer.start()
        arguments = f"--runner=dask --dask_client_address={where} --dask_npartitions=6"
        build_both(options, arguments, Sizes(shard_bytes=1000))
        killer.join(timeout=10)
        assert written == [False] and workers[0].wait(10) == -9 and workers[1].poll() is None
    assert len(Manifest.read(options.output).shards) > 12


@pytest.mark.slow
def test_a_job_service_and_its_worker_pool_write_the_same(options):  # noqa: F811
    """Beam's portable protocol, as with Flink."""
    pytest.importorskip("apache_beam")
    jobs, pool = free_port(), free_port()
    with (
        started("apache_beam.runners.portability.local_job_service_main", f"--port={jobs}"),
        started("apache_beam.runners.worker.worker_pool_main", f"--service_port={pool}"),
    ):
        wait_for(jobs)
        wait_for(pool)
        build_both(
            options,
            f"--runner=PortableRunner --job_endpoint=localhost:{jobs} --environment_type=EXTERNAL "
            f"--environment_config=localhost:{pool}",
            Sizes(shard_bytes=1000),
        )


@pytest.mark.parametrize(
    "arguments",
    [
        "--runner=PortableRunner --job_endpoint=localhost:{port}",
        "--runner=FlinkRunner --flink_master=http://localhost:{port}",
        "--runner=SparkRunner --spark_master_url=spark://localhost:{port}",
    ],
)
def test_a_server_that_does_not_listen_is_named(options, arguments):  # noqa: F811
    pytest.importorskip("apache_beam")
    port, flag = free_port(), arguments.split()[1].split("=")[0]
    bad = dataclasses.replace(options, runner="beam", beam_args=arguments.format(port=port))
    with pytest.raises(MachineError, match=f"no server answers at {flag} .*: localhost:{port} "):
        build(bad)
    assert not pathlib.Path(options.output).exists()


@pytest.mark.parametrize(
    ("beam_args", "message"),
    [
        ("--job_endpoint=localhost", "--job_endpoint in --beam_args must be HOST:PORT. Received: "),
        pytest.param(
            "--dask_client_address=scheduler",
            "--dask_client_address in --beam_args must be HOST",
            marks=pytest.mark.slow,
        ),
        ("--job_endpoint=[::1]:{port}", "no server answers at --job_endpoint in --beam_args: "),
        ("--job_endpoint=dns:///localhost:{port}", "no server answers at --job_endpoint in --be"),
    ],
)
def test_an_address_of_any_form_is_tried_or_refused(beam_args, message):
    pytest.importorskip("apache_beam")
    if "dask" in beam_args:
        pytest.importorskip("apache_beam.runners.dask.dask_runner")
    with pytest.raises((InputError, MachineError)) as caught:
        endpoints.require_answers(beam_runner.require_beam(beam_args.format(port=free_port())))
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("flag", "reason"),
    [
        ("--job_endpoint={}", "no gRPC within 0.5 s"),
        pytest.param("--dask_client_address=tcp://{}", "timed out", marks=pytest.mark.slow),
    ],
)
def test_a_server_of_another_protocol_is_named(flag, reason):
    """One that takes connections and says nothing."""
    pytest.importorskip("apache_beam")
    if "dask" in flag:
        pytest.importorskip("apache_beam.runners.dask.dask_runner")
    with socket.create_server(("127.0.0.1", 0)) as server:
        beam_args = flag.format(f"127.0.0.1:{server.getsockname()[1]}")
        with pytest.raises(MachineError, match=f"{flag.split('=')[0]} .*{reason}"):
            endpoints.require_answers(beam_runner.require_beam(beam_args), timeout_s=0.5)


def test_the_pool_of_processes_must_answer_where_the_job_service_is(monkeypatch):
    pytest.importorskip("apache_beam")
    monkeypatch.setattr(endpoints, "_call", lambda *_: None)
    with socket.create_server(("127.0.0.1", 0)) as server:
        here, pool = server.getsockname()[1], free_port()
        beam_args = f"--job_endpoint=127.0.0.1:{here} --environment_config=localhost:{pool}"
        with pytest.raises(MachineError, match=f"--environment_config .*: localhost:{pool} "):
            endpoints.require_answers(beam_runner.require_beam(beam_args))
