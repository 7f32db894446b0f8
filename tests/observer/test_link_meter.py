"""Traffic of the link to a GPU during a load, from sensors that count up."""

from common.measurements.meters import link_meter
from common.sensors.sensor import Sample


class Link:
    """A sensor of both directions: 3 and 7 GB/s at the first reading, 1 more at each later one."""

    name, domain, period_s = "link", "gpu-0", 0.0
    quantities = ("pcie_tx_bytes_per_s", "pcie_rx_bytes_per_s", "sm_utilization_share")

    def __init__(self):
        self.read = 0

    def restart(self):
        pass

    def sample(self):
        self.read += 1
        values = zip(self.quantities, (2e9 + 1e9 * self.read, 6e9 + 1e9 * self.read, 0.5), strict=True)
        return [Sample(float(self.read), self.name, self.domain, quantity, value) for quantity, value in values]


def test_the_mean_of_what_was_read(monkeypatch):
    link = Link()
    monkeypatch.setattr("common.measurements.meters.available_sensors", lambda: ([link], []))
    with link_meter("cuda") as figures:
        first = figures()
    last = (link.read + 1) / 2 * 1e9
    assert first == {
        "pcie_tx_bytes_per_s": first["pcie_rx_bytes_per_s"] - 4e9,
        "pcie_rx_bytes_per_s": first["pcie_rx_bytes_per_s"],
        "pcie_unavailable": None,
    }
    assert first["pcie_tx_bytes_per_s"] >= 3e9
    assert figures()["pcie_tx_bytes_per_s"] == 2e9 + last


def test_a_gpu_without_counters_says_so(monkeypatch):
    monkeypatch.setattr("common.measurements.meters.available_sensors", lambda: ([], ["gpu: no driver"]))
    with link_meter("cuda") as figures:
        found = figures()
    assert found["pcie_tx_bytes_per_s"] is None and found["pcie_rx_bytes_per_s"] is None
    assert found["pcie_unavailable"] == "no sensor of this host reads PCIe counters"


def test_the_processor_has_no_such_link_and_no_sensor_is_opened(monkeypatch):
    monkeypatch.setattr("common.measurements.meters.available_sensors", lambda: 1 / 0)
    with link_meter("") as figures:
        assert figures()["pcie_unavailable"].startswith("no device is behind PCIe")
