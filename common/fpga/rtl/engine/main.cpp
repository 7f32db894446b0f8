// The engine's clock, the host that gives it descriptors, and the card's memory.
#include "Vengine.h"
#include "memory.h"
#include "verilated.h"

static std::vector<uint8_t> content(const char *path) {
    std::vector<uint8_t> bytes;
    if (FILE *file = std::fopen(path, "rb")) {
        std::fseek(file, 0, SEEK_END);
        bytes.resize(std::ftell(file));
        std::rewind(file);
        if (std::fread(bytes.data(), 1, bytes.size(), file) != bytes.size()) std::exit(3);
        std::fclose(file);
    } else {
        std::exit(3);
    }
    return bytes;
}

// The host's reads, one at a time: how many stores are over, and after each change all counters as they were together.
struct Poll {
    int place = -1;  // of the counter that is read, or -1 for the stores
    bool is_asked = false;
    uint32_t stores = 0, spent[8] = {0};

    uint32_t address() const { return place < 0 ? 0x08 : 0x10 + 4 * place; }

    // Take an answer; true when all counters were read.
    bool take(uint32_t answer) {
        is_asked = false;
        if (place < 0) {
            if ((answer & 0xffff) != stores) place = 0;
            stores = answer & 0xffff;
            return false;
        }
        spent[place] = answer;
        place = place == 7 ? -1 : place + 1;
        return place < 0;
    }
};

// Stores that a script asks for, modulo 2^16: each is six words.
static uint32_t stores_of(const uint32_t *pairs, size_t count) {
    uint32_t words = 0;
    for (size_t i = 0; i < count; ++i) words += pairs[2 * i] == 0x48;
    return words / 6 & 0xffff;
}

static void note(FILE *log, const Poll &poll) {
    std::fprintf(log, "stores %u", poll.stores);
    for (uint32_t spent : poll.spent) std::fprintf(log, " %u", spent);
    std::fprintf(log, "\n");
}

int main(int argc, char **argv) {
    if (argc != 12) return 3;
    const uint64_t word = std::strtoull(argv[3], nullptr, 10), limit = std::strtoull(argv[4], nullptr, 10);
    Timing timing = {std::atof(argv[5]), std::atof(argv[6]), std::atof(argv[7]), std::atof(argv[8]), std::atof(argv[9]),
                     std::strtoull(argv[10], nullptr, 10), std::strtoull(argv[11], nullptr, 10)};
    Memory memory(timing);
    memory.bytes = content(argv[1]);
    const std::vector<uint8_t> script = content(argv[2]);  // pairs of 32-bit words: address on the host bus, word
    const uint32_t *pairs = reinterpret_cast<const uint32_t *>(script.data());
    const size_t count = script.size() / 8;
    const uint32_t stores = stores_of(pairs, count);
    const uint64_t reset_cycles = 512;

    VerilatedContext context;
    Vengine engine{&context};
    FILE *log = std::fopen("log.txt", "w");
    Poll poll;
    size_t given = 0;
    bool was_busy = false;
    for (uint64_t cycle = 0;; ++cycle) {
        if (cycle > limit) {
            std::fprintf(stderr, "error: not over after %llu cycles\n", (unsigned long long)limit);
            return 2;
        }
        const double now = double(cycle);
        const bool runs = cycle >= reset_cycles;
        engine.rst = !runs;
        engine.awvalid = engine.wvalid = runs && given < count;
        engine.awaddr = given < count ? pairs[2 * given] : 0;
        engine.wdata = given < count ? pairs[2 * given + 1] : 0;
        engine.bready = engine.rready = 1;
        engine.arvalid = runs && !poll.is_asked;
        engine.araddr = poll.address();
        memory.drive(engine, word, now);
        engine.clk = 0;
        engine.eval();
        memory.sample(engine, word, runs);
        if (engine.awvalid && engine.awready) ++given;
        if (engine.rvalid && poll.take(engine.rdata)) note(log, poll);
        if (engine.arvalid && engine.arready) poll.is_asked = true;
        was_busy = was_busy || (runs && engine.busy);
        const bool is_over = given == count && was_busy && !engine.busy && poll.place < 0 && poll.stores == stores;
        memory.serve(word, now);
        engine.clk = 1;
        engine.eval();
        if (is_over) break;
    }
    std::fprintf(log, "memory %.0f %.0f %.0f\n", memory.busy_cycles, memory.rows_cycles, memory.refresh_cycles);
    std::fclose(log);
    FILE *out = std::fopen("after.bin", "wb");
    std::fwrite(memory.bytes.data(), 1, memory.bytes.size(), out);
    std::fclose(out);
    return 0;
}
