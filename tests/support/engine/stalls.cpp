// A host and a memory that stall at random, on every channel, by one of several laws; and a check of the AXI4 protocol.
// It shares nothing with the memory of common/fpga/rtl. Exit codes: 2 never over, 4 against the protocol.
#include "Vengine.h"
#include "verilated.h"
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

using Bytes = std::vector<uint8_t>;

static Bytes content(const char *path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

static void require(bool is_so, const char *rule, uint64_t cycle) {
    if (is_so) return;
    std::fprintf(stderr, "error: %s, in cycle %llu\n", rule, (unsigned long long)cycle);
    std::exit(4);
}

// How often each side is ready, and how long an answer takes.
struct Law {
    std::string name;
    std::mt19937_64 random;
    double host = 0.4, addresses = 0.5, writes = 0.5, reads = 0.5;

    Law(const char *given, uint64_t seed) : name(given), random(seed) {
        if (name == "never") host = addresses = writes = reads = 1;
        if (name == "starved") host = 0.9, addresses = 0.08, writes = 0.1, reads = 0.12;
    }
    bool chance(double share) { return name == "never" || std::uniform_real_distribution<>(0, 1)(random) < share; }
    uint64_t latency() {
        if (name == "never") return 0;
        if (name == "geometric") return std::geometric_distribution<int>(0.05)(random);
        if (name == "pareto") return uint64_t(3 * std::pow(std::uniform_real_distribution<>(1e-4, 1)(random), -0.7));
        return 5 + random() % 60;
    }
    bool is_shut(uint64_t cycle) const { return name == "refresh" && cycle % 501 < 97; }
};

struct Burst {
    uint64_t address, left, at;  // at: when the first word, or the answer, may be there
};

// A request of the engine: it stays as it is until it is taken.
struct Request {
    bool waits = false;
    uint64_t address = 0;
    unsigned words = 0;

    void check(bool valid, bool ready, uint64_t a, unsigned count, uint64_t word, uint64_t size, uint64_t cycle) {
        require(!waits || (valid && a == address && count == words), "a request changed before it was taken", cycle);
        waits = valid && !ready;
        address = a, words = count;
        if (!valid) return;
        require(a % word == 0, "a burst is not aligned", cycle);
        require(a / 4096 == (a + count * word - 1) / 4096, "a burst crosses 4 KiB", cycle);
        require(a + count * word <= size, "a burst is beyond memory", cycle);
    }
};

int main(int argc, char **argv) {
    if (argc != 7) return 3;  // memory, script, bytes of a word, law, seed, limit
    Bytes memory = content(argv[1]);
    const Bytes script = content(argv[2]);
    const uint32_t *pairs = reinterpret_cast<const uint32_t *>(script.data());
    const uint64_t count = script.size() / 8, word = std::atoll(argv[3]), limit = std::atoll(argv[6]);
    const uint64_t reset_cycles = 700, quiet_cycles = 3000;
    Law law(argv[4], std::atoll(argv[5]));
    VerilatedContext context;
    Vengine engine{&context};
    std::deque<Burst> reads, writes, answers;
    std::deque<std::pair<Bytes, bool>> data;  // words of writes, and whether each was the last of its burst
    Request read, write;
    Bytes shown(word), written(word);
    bool gives = false, has_word = false, has_answer = false, data_waits = false;
    uint64_t given = 0, quiet = 0;
    for (uint64_t cycle = 0; quiet < quiet_cycles; ++cycle) {
        if (cycle > limit) return 2;
        const bool runs = cycle >= reset_cycles, open = !law.is_shut(cycle);
        engine.rst = !runs;
        gives = gives || (runs && given < count && law.chance(law.host));
        engine.awvalid = engine.wvalid = gives;
        engine.awaddr = gives ? pairs[2 * given] : 0xa5;
        engine.wdata = gives ? pairs[2 * given + 1] : 0xdeadbeef;
        engine.bready = law.chance(0.7);
        engine.arvalid = engine.araddr = 0;
        engine.rready = law.chance(0.5);
        engine.mem_arready = open && reads.size() < 3 && law.chance(law.addresses);
        engine.mem_awready = open && writes.size() < 2 && law.chance(law.addresses);
        engine.mem_wready = open && data.size() < 40 && law.chance(law.writes);
        has_word = has_word || (open && !reads.empty() && reads.front().at <= cycle && law.chance(law.reads));
        engine.mem_rvalid = has_word;
        for (auto &byte : shown) byte = law.random();  // rubbish where nothing is valid
        if (has_word) std::memcpy(shown.data(), &memory.at(reads.front().address), word);
        std::memcpy(&engine.mem_rdata, shown.data(), word);
        has_answer = has_answer || (!answers.empty() && answers.front().at <= cycle && law.chance(0.4));
        engine.mem_bvalid = has_answer;
        engine.clk = 0;
        engine.eval();
        if (runs) {
            read.check(engine.mem_arvalid, engine.mem_arready, engine.mem_araddr, engine.mem_arlen + 1u, word, memory.size(), cycle);
            write.check(engine.mem_awvalid, engine.mem_awready, engine.mem_awaddr, engine.mem_awlen + 1u, word, memory.size(), cycle);
            const bool same = engine.mem_wvalid && !std::memcmp(&engine.mem_wdata, written.data(), word);
            require(!data_waits || same, "a word changed before it was taken", cycle);
            data_waits = engine.mem_wvalid && !engine.mem_wready;
            std::memcpy(written.data(), &engine.mem_wdata, word);
            if (engine.mem_arvalid && engine.mem_arready) reads.push_back({read.address, read.words, cycle + 1 + law.latency()});
            if (engine.mem_awvalid && engine.mem_awready) writes.push_back({write.address, write.words, 0});
            if (engine.mem_wvalid && engine.mem_wready) data.push_back({written, bool(engine.mem_wlast)});
            if (has_word && engine.mem_rready) {
                reads.front().address += word;
                if (!--reads.front().left) reads.pop_front();
                has_word = false;
            }
            if (has_answer && engine.mem_bready) answers.pop_front(), has_answer = false;
            while (!data.empty() && !writes.empty()) {
                Burst &burst = writes.front();
                std::memcpy(&memory.at(burst.address), data.front().first.data(), word);
                burst.address += word;
                require(data.front().second == !--burst.left, "the last word of a burst is another one", cycle);
                data.pop_front();
                if (burst.left) continue;
                answers.push_back({0, 0, cycle + 1 + law.latency()});
                writes.pop_front();
            }
            if (gives && engine.awready && engine.wready) ++given, gives = false;
            const bool is_over = given == count && !engine.busy && reads.empty() && writes.empty() && answers.empty();
            quiet = is_over ? quiet + 1 : 0;
        }
        engine.clk = 1;
        engine.eval();
        if (quiet == quiet_cycles) std::printf("%llu\n", (unsigned long long)(cycle - quiet_cycles - reset_cycles));
    }
    std::ofstream("after.bin", std::ios::binary).write(reinterpret_cast<char *>(memory.data()), memory.size());
    return 0;
}
