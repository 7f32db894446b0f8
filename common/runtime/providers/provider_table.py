"""Table of the execution providers: what each one needs, what its trace shows, and whether it is present.

A provider that this build offers need not run anything: if its library fails to load, the runtime silently takes the
CPU. :func:`probe` therefore asks a session which provider it gave a node to.

Sources: the provider pages of ONNX Runtime's documentation ("Execution Providers"; "Profiling tools" for what a trace
has), its source (``fallback_cpu_capability.cc`` for shape arithmetic; ``inference_session.cc``: no graph with compiled
nodes is saved, and DirectML fuses nothing where a graph is saved), and runs of CPU and OpenVINO.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from onnx import TensorProto, helper

from common.messages.errors import UnusableValueError
from common.runtime.library import SILENT, ort

CPU = "CPUExecutionProvider"
DIRECTML = "DmlExecutionProvider"
OPENVINO = "OpenVINOExecutionProvider"
LAUNCHES = "node times cover only the launch of the kernels, which the device runs later"
ONE_NODE = "one node per subgraph that it took"


@dataclass(frozen=True, slots=True)
class Provider:
    """One provider."""

    name: str
    full_name: str
    package: str
    needs: str
    platforms: str
    trace: str
    measuring: str  # which options affect a measurement; sessions set those in ``options``
    compiles: bool = False  # it turns each subgraph into one node, and the runtime cannot save the executed graph
    leaves_shapes: bool = False  # the runtime keeps shape arithmetic on the CPU for it
    options: Mapping[str, str] = field(default_factory=dict)
    threads_option: str = ""  # the provider's own option for a thread count
    device: str = ""  # the runtime's name of a device with memory of its own, whose tensors a session can be bound to


PROVIDERS = (
    Provider(
        "cpu",
        CPU,
        package="onnxruntime",
        needs="nothing",
        platforms="Linux, Windows, macOS; x86-64, Arm64",
        trace="every node, with its shapes, sizes and use of the thread pool",
        measuring="the thread count; idle threads do not spin beside the other session",
    ),
    Provider(
        "cuda",
        "CUDAExecutionProvider",
        package="onnxruntime-gpu",
        needs="an NVIDIA GPU and driver; CUDA and cuDNN of the major versions that the package names",
        platforms="Linux, Windows; x86-64",
        trace=f"{LAUNCHES}. A build with --enable_cuda_profiling adds an event for each kernel, by CUPTI",
        measuring="enable_cuda_graph=0: a replayed graph has no node events; "
        "cudnn_conv_algo_search=EXHAUSTIVE searches in the first run",
        leaves_shapes=True,
        options={"enable_cuda_graph": "0"},
        device="cuda",
    ),
    Provider(
        "tensorrt",
        "TensorrtExecutionProvider",
        package="onnxruntime-gpu, with TensorRT's libraries",
        needs="an NVIDIA GPU and driver; CUDA, cuDNN and TensorRT of the versions that the package names",
        platforms="Linux, Windows; x86-64",
        trace=f"{ONE_NODE}; layers only by TensorRT's own profiler",
        measuring="the first session builds engines, for minutes; trt_engine_cache_enable=1 keeps them; "
        "trt_fp16_enable=0 keeps float32",
        compiles=True,
        leaves_shapes=True,
        options={"trt_fp16_enable": "0"},
        device="cuda",
    ),
    Provider(
        "directml",
        DIRECTML,
        package="onnxruntime-directml",
        needs="a GPU with DirectX 12 and its driver; Windows 10 version 1903 or newer",
        platforms="Windows",
        trace=f"{LAUNCHES}. A session that saves its graph, as the profiled one does, runs without DirectML's fusion",
        measuring="memory patterns off and sequential execution, which it requires; device_id chooses the GPU",
        leaves_shapes=True,
        device="dml",
    ),
    Provider(
        "openvino",
        OPENVINO,
        package="onnxruntime-openvino, in an environment of its own: make openvino",
        needs="an x86-64 CPU, or an Intel GPU or NPU with its driver; OpenVINO is in the package",
        platforms="Linux, Windows; x86-64",
        trace=f"{ONE_NODE}; layers by OpenVINO's own counters",
        measuring="device_type=CPU and num_of_threads; float32 unless load_config asks for bfloat16",
        compiles=True,
        options={"device_type": "CPU"},
        threads_option="num_of_threads",
    ),
    Provider(
        "qnn",
        "QNNExecutionProvider",
        package="onnxruntime-qnn, from 2.0 on a plug-in to register with onnxruntime",
        needs="a Qualcomm Snapdragon with an HTP (NPU) and its driver, or Linux on x86-64 with the HTP's emulator "
        "(make npu); a model of static shapes",
        platforms="Windows on Arm64, Android, Linux on Arm64; emulated on Linux on x86-64",
        trace=f"{ONE_NODE}; operators in a CSV file of its own: profiling_level=detailed with profiling_file_path",
        measuring="backend_type=htp; htp_performance_mode fixes the clocks; detailed profiling slows every run",
        compiles=True,
        options={"backend_type": "htp"},
    ),
    Provider(
        "coreml",
        "CoreMLExecutionProvider",
        package="onnxruntime (its builds for macOS have it)",
        needs="macOS 10.15 or newer, or iOS 13; MLProgram needs macOS 12",
        platforms="macOS, iOS",
        trace=f"{ONE_NODE}; ProfileComputePlan=1 logs the device and estimated cost of each operator, no times",
        measuring="ModelFormat=MLProgram; MLComputeUnits chooses CPU, GPU or Neural Engine",
        compiles=True,
        options={"ModelFormat": "MLProgram"},
    ),
)


def find_provider(name: str) -> Provider | None:
    """Find a provider by any spelling: ``cuda``, ``CUDAExecutionProvider``, ``dml``; None for an unknown one."""
    for row in PROVIDERS:
        full_name = row.full_name.lower()
        if name.lower() in (row.name, full_name, full_name.removesuffix("executionprovider")):
            return row
    return None


def offered_providers() -> list[str]:
    """List the full names of the providers in this build, then of those that come as plug-in libraries."""
    built_in = [str(name) for name in ort.get_available_providers()]
    plugged = [str(device.ep_name) for device in ort.get_ep_devices()]
    return [*dict.fromkeys([*built_in, *plugged])]


def resolve_provider(name: str) -> str:
    """Return the runtime's name of a provider: ``CPUExecutionProvider`` for ``cpu``.

    An UnusableValueError says that this build of the runtime has no such provider.
    """
    offered, row = offered_providers(), find_provider(name)
    spellings = {name.lower(), f"{name.lower()}executionprovider", row.full_name.lower() if row else ""}
    full_name = next((full_name for full_name in offered if full_name.lower() in spellings), None)
    if full_name:
        return full_name
    remedy = f"it comes with {row.package}" if row else f"it has {', '.join(offered)}"
    raise UnusableValueError("provider", f"{name} is not in this build of onnxruntime", remedy)


def plug_in_devices(full_name: str) -> list[Any]:
    return [device for device in ort.get_ep_devices() if device.ep_name == full_name]


def provider_options(full_name: str, threads: int) -> dict[str, str]:
    row = find_provider(full_name)
    if row is None:
        return {}
    return {**row.options, **({row.threads_option: str(threads)} if row.threads_option else {})}


def chosen_provider(options: ort.SessionOptions, full_name: str, threads: int) -> dict[str, Any]:
    """Return a provider as arguments of a session; a plug-in provider is set in the options instead."""
    own = provider_options(full_name, threads)
    if full_name in ort.get_available_providers():
        return {"providers": [(full_name, own)]}
    options.add_provider_for_devices(plug_in_devices(full_name)[:1], own)
    return {}


def device_of(full_name: str) -> str:
    """Return the runtime's name of the device whose memory a provider computes in; empty for host memory."""
    row = find_provider(full_name)
    return row.device if row else ""


def compiles(full_name: str) -> bool:
    """Return whether a provider turns each subgraph into one node."""
    row = find_provider(full_name)
    return row is not None and row.compiles


def probe(full_name: str) -> str:
    """Test a provider: ``absent``, ``runs``, or why a session that asks for it gives it no node."""
    if full_name not in offered_providers():
        return "absent"
    options = ort.SessionOptions()
    options.log_severity_level = SILENT
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    try:
        session = ort.InferenceSession(_one_node(), options, **chosen_provider(options, full_name, 1))
    except Exception:  # the runtime raises a dozen unrelated types
        return "offered, but it fails"
    if full_name not in session.get_providers():
        return "offered, but its library does not load"
    ran = {str(part.ep_name) for part in session.get_provider_graph_assignment_info()}
    return "runs" if ran == {full_name} else "offered, but it takes no node"


def _one_node() -> bytes:
    """Serialize a model of one MatMul, which every provider takes."""
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [8, 8]) for name in ("x", "w", "y")]
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"], "matmul")], "probe", ends[:2], ends[2:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    return bytes(model.SerializeToString())


def provider_rows() -> list[dict[str, str]]:
    """Return the table as text, with the outcome of :func:`probe` as ``present``."""
    columns = ("name", "full_name", "package", "needs", "platforms", "trace", "measuring")
    return [
        {**{column: getattr(row, column) for column in columns}, "present": probe(row.full_name)} for row in PROVIDERS
    ]
