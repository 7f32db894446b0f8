// A host and a card around the engine as an RTL kernel: registers by AXI4-Lite, memory and list by AXI4.
//
//     program MEMORY LIST WORD_BYTES LIMIT timing (seven numbers) IMAGE ADDRESS [IMAGE ADDRESS ...]
//
// Each image is written to its address of the memory, the kernel is started, and its control register is read until it
// says done. Printed are the control register before the start, in the cycle behind it, and twice at the end; then the
// other registers as they are read back. The memory after run n is in after.n.bin.
#include <string>
#include <type_traits>

#include "Vkernel.h"
#include "memory.h"
#include "verilated.h"

static std::vector<uint8_t> content(const char *path) {
    FILE *file = std::fopen(path, "rb");
    if (!file) std::exit(3);
    std::vector<uint8_t> bytes;
    for (int c; (c = std::fgetc(file)) != EOF;) bytes.push_back(uint8_t(c));
    std::fclose(file);
    return bytes;
}

constexpr uint64_t MEMORY_BASE = 0x7'2345'0000, LIST_BASE = 0x12'0000'1000;  // both need the upper halves of registers
constexpr int LIST_LATENCY = 5;

// The kernel's memory port by the names of memory.h, with addresses within the memory.
struct Port {
    bool mem_arready, mem_awready, mem_wready, mem_rvalid, mem_bvalid;
    bool mem_arvalid, mem_awvalid, mem_wvalid, mem_rready;
    uint64_t mem_araddr, mem_awaddr;
    uint8_t mem_arlen, mem_awlen;
    std::decay_t<decltype(Vkernel::m_axi_memory_rdata)> mem_rdata;
    std::decay_t<decltype(Vkernel::m_axi_memory_wdata)> mem_wdata;
};

struct Card {
    VerilatedContext context;
    Vkernel kernel{&context};
    Memory memory;
    Port port{};
    std::vector<uint8_t> list;
    std::deque<std::pair<uint64_t, uint64_t>> entries;  // when an entry of the list is there, and its place
    uint64_t word, limit, cycle = 0;

    Card(const Timing &timing, uint64_t word_bytes, uint64_t most) : memory(timing), word(word_bytes), limit(most) {}

    void fail(const char *what) {
        std::fprintf(stderr, "error: cycle %llu: %s\n", (unsigned long long)cycle, what);
        std::exit(2);
    }

    // One cycle; `seen` looks at the outputs before the clock's edge.
    template <class Seen> void tick(bool runs, Seen seen) {
        if (++cycle > limit) fail("not over");
        const double now = double(cycle);
        memory.drive(port, word, now);
        kernel.ap_rst_n = runs;
        kernel.m_axi_memory_arready = port.mem_arready;
        kernel.m_axi_memory_awready = port.mem_awready;
        kernel.m_axi_memory_wready = port.mem_wready;
        kernel.m_axi_memory_rvalid = port.mem_rvalid;
        kernel.m_axi_memory_rdata = port.mem_rdata;
        kernel.m_axi_memory_bvalid = port.mem_bvalid;
        const bool has_entry = !entries.empty() && entries.front().first <= cycle;
        kernel.m_axi_list_arready = entries.size() < 2 && cycle % 3 == 0;
        kernel.m_axi_list_rvalid = kernel.m_axi_list_rlast = has_entry;
        if (has_entry) std::memcpy(&kernel.m_axi_list_rdata, &list[entries.front().second], 8);
        kernel.ap_clk = 0;
        kernel.eval();
        port.mem_arvalid = kernel.m_axi_memory_arvalid;
        port.mem_awvalid = kernel.m_axi_memory_awvalid;
        port.mem_wvalid = kernel.m_axi_memory_wvalid;
        port.mem_rready = kernel.m_axi_memory_rready;
        port.mem_araddr = kernel.m_axi_memory_araddr - MEMORY_BASE;
        port.mem_awaddr = kernel.m_axi_memory_awaddr - MEMORY_BASE;
        port.mem_arlen = kernel.m_axi_memory_arlen;
        port.mem_awlen = kernel.m_axi_memory_awlen;
        port.mem_wdata = kernel.m_axi_memory_wdata;
        if (runs && port.mem_arvalid) check(port.mem_araddr, port.mem_arlen, kernel.m_axi_memory_arsize);
        if (runs && port.mem_awvalid) check(port.mem_awaddr, port.mem_awlen, kernel.m_axi_memory_awsize);
        memory.sample(port, word, runs);
        if (runs && kernel.m_axi_list_arvalid && kernel.m_axi_list_arready) {
            const uint64_t place = kernel.m_axi_list_araddr - LIST_BASE;
            if (place + 8 > list.size() || kernel.m_axi_list_arlen || kernel.m_axi_list_arsize != 3) fail("not in the list");
            entries.push_back({cycle + LIST_LATENCY, place});
        }
        if (has_entry && kernel.m_axi_list_rready) entries.pop_front();
        seen();
        memory.serve(word, now);
        kernel.ap_clk = 1;
        kernel.eval();
    }

    void check(uint64_t address, uint64_t beats, uint64_t size) {
        const uint64_t last = address + (beats + 1) * word - 1;
        if (last >= memory.bytes.size() || (1ull << size) != word) fail("not in the memory");
        if (address / 4096 != last / 4096) fail("a burst crosses a page");
    }

    void write(uint32_t address, uint32_t data) {
        kernel.s_axi_control_awvalid = kernel.s_axi_control_wvalid = 1;
        kernel.s_axi_control_awaddr = address;
        kernel.s_axi_control_wdata = data;
        kernel.s_axi_control_wstrb = 15;
        bool is_taken = false, is_over = false;
        while (!is_taken) tick(true, [&] { is_taken = kernel.s_axi_control_awready && kernel.s_axi_control_wready; });
        kernel.s_axi_control_awvalid = kernel.s_axi_control_wvalid = 0;
        kernel.s_axi_control_bready = 1;
        while (!is_over) tick(true, [&] { is_over = kernel.s_axi_control_bvalid; });
        kernel.s_axi_control_bready = 0;
    }

    uint32_t read(uint32_t address) {
        kernel.s_axi_control_arvalid = 1;
        kernel.s_axi_control_araddr = address;
        bool is_taken = false, is_over = false;
        uint32_t data = 0;
        while (!is_taken) tick(true, [&] { is_taken = kernel.s_axi_control_arready; });
        kernel.s_axi_control_arvalid = 0;
        kernel.s_axi_control_rready = 1;
        while (!is_over) {
            tick(true, [&] {
                is_over = kernel.s_axi_control_rvalid;
                data = kernel.s_axi_control_rdata;
            });
        }
        kernel.s_axi_control_rready = 0;
        return data;
    }
};

int main(int argc, char **argv) {
    if (argc < 14 || argc % 2) return 3;
    const Timing timing = {std::atof(argv[5]), std::atof(argv[6]), std::atof(argv[7]), std::atof(argv[8]),
                           std::atof(argv[9]), std::strtoull(argv[10], nullptr, 10), std::strtoull(argv[11], nullptr, 10)};
    Card card(timing, std::strtoull(argv[3], nullptr, 10), std::strtoull(argv[4], nullptr, 10));
    card.memory.bytes = content(argv[1]);
    card.list = content(argv[2]);
    for (int n = 0; n < 600; ++n) card.tick(n > 20, [] {});
    const uint32_t count = uint32_t(card.list.size() / 8);
    const uint32_t values[] = {uint32_t(MEMORY_BASE), uint32_t(MEMORY_BASE >> 32), uint32_t(LIST_BASE),
                               uint32_t(LIST_BASE >> 32), count};
    const uint32_t places[] = {0x10, 0x14, 0x1c, 0x20, 0x28};
    for (int n = 0; n < 5; ++n) card.write(places[n], values[n]);
    for (int run = 0; 12 + 2 * run + 1 < argc; ++run) {
        const std::vector<uint8_t> image = content(argv[12 + 2 * run]);
        std::memcpy(&card.memory.bytes[std::strtoull(argv[13 + 2 * run], nullptr, 10)], image.data(), image.size());
        const uint32_t before = card.read(0);
        card.write(0, 1);
        const uint64_t begin = card.cycle;
        const uint32_t behind = card.read(0);
        uint32_t control = behind;
        while (!(control & 2)) {
            if (control & 4) card.fail("idle, and not done");
            control = card.read(0);
        }
        const uint64_t cycles = card.cycle - begin;
        std::printf("control %u %u %u %u cycles %llu\n", before, behind & 7, control & 7, card.read(0),
                    (unsigned long long)cycles);
        FILE *out = std::fopen(("after." + std::to_string(run) + ".bin").c_str(), "wb");
        std::fwrite(card.memory.bytes.data(), 1, card.memory.bytes.size(), out);
        std::fclose(out);
    }
    for (int n = 0; n < 5; ++n) std::printf("register %u\n", unsigned(card.read(places[n]) == values[n]));
    return 0;
}
