// The engine's clock, the host that gives it descriptors, and the card's memory behind AXI4.
//
// Memory serves bursts in their order, those of reads and of writes in turns. A burst waits until the data bus is free;
// a bank whose open row is another one is closed and opened first; at each refresh interval all rows are closed and
// nothing is served for a while. A word then takes `word_cycles` on the bus, and a read's first word comes `latency`
// cycles after its burst begins.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <vector>

#include "Vengine.h"
#include "verilated.h"

struct Timing {
    double latency, word_cycles, row_miss, refresh_interval, refresh;
    uint64_t banks, row_bytes;
};

struct Burst {
    uint64_t address;
    unsigned beats;
};

struct Memory {
    std::vector<uint8_t> bytes;
    Timing timing;
    std::vector<int64_t> open_rows;
    double free_at = 0, next_refresh, rows_cycles = 0, refresh_cycles = 0, busy_cycles = 0;
    std::deque<Burst> reads, writes;
    std::deque<std::pair<double, uint64_t>> beats;  // when a word of a read is there, and its address
    std::deque<double> answers;
    std::vector<uint8_t> pending;  // words of writes that are not in memory
    bool reads_turn = true;

    explicit Memory(const Timing &given) : timing(given), open_rows(given.banks, -1), next_refresh(given.refresh_interval) {}

    // Return when a burst begins, and keep the bus until it is over.
    double begin(const Burst &burst, double now) {
        double start = free_at > now ? free_at : now;
        while (timing.refresh_interval > 0 && start >= next_refresh) {
            const double end = next_refresh + timing.refresh;
            if (end > start) { refresh_cycles += end - start; start = end; }
            next_refresh += timing.refresh_interval;
            open_rows.assign(timing.banks, -1);
        }
        const uint64_t line = burst.address / timing.row_bytes, bank = line % timing.banks;
        if (open_rows[bank] != int64_t(line)) {
            open_rows[bank] = int64_t(line);
            start += timing.row_miss;
            rows_cycles += timing.row_miss;
        }
        free_at = start + burst.beats * timing.word_cycles;
        busy_cycles += burst.beats * timing.word_cycles;
        return start;
    }

    void serve(uint64_t word, double now) {
        if (free_at > now + 1) return;
        const bool has_write = !writes.empty() && pending.size() >= writes.front().beats * word;
        const bool reads_now = !reads.empty() && (reads_turn || !has_write);
        if (reads_now) {
            const Burst burst = reads.front();
            reads.pop_front();
            const double start = begin(burst, now);
            for (unsigned i = 0; i < burst.beats; ++i) {
                beats.push_back({start + timing.latency + (i + 1) * timing.word_cycles, burst.address + i * word});
            }
            reads_turn = false;
        } else if (has_write) {
            const Burst burst = writes.front();
            writes.pop_front();
            const double start = begin(burst, now);
            std::memcpy(&bytes[burst.address], pending.data(), burst.beats * word);
            pending.erase(pending.begin(), pending.begin() + burst.beats * word);
            answers.push_back(start + burst.beats * timing.word_cycles);
            reads_turn = true;
        }
    }
};

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
        // What stands at the inputs in this cycle follows from the state before it.
        const bool has_word = !memory.beats.empty() && memory.beats.front().first <= now;
        engine.rst = !runs;
        engine.awvalid = engine.wvalid = runs && given < count;
        engine.awaddr = given < count ? pairs[2 * given] : 0;
        engine.wdata = given < count ? pairs[2 * given + 1] : 0;
        engine.bready = engine.rready = 1;
        engine.arvalid = runs && !poll.is_asked;
        engine.araddr = poll.address();
        engine.mem_arready = memory.reads.size() < 8;
        engine.mem_awready = memory.writes.size() < 8;
        engine.mem_wready = memory.pending.size() < 65536;
        engine.mem_rvalid = has_word;
        if (has_word) std::memcpy(&engine.mem_rdata, &memory.bytes[memory.beats.front().second], word);
        engine.mem_bvalid = !memory.answers.empty() && memory.answers.front() <= now;
        engine.clk = 0;
        engine.eval();
        if (runs && engine.mem_arvalid && engine.mem_arready) {
            memory.reads.push_back({engine.mem_araddr, unsigned(engine.mem_arlen) + 1});
        }
        if (runs && engine.mem_awvalid && engine.mem_awready) {
            memory.writes.push_back({engine.mem_awaddr, unsigned(engine.mem_awlen) + 1});
        }
        if (runs && engine.mem_wvalid && engine.mem_wready) {
            const uint8_t *data = reinterpret_cast<const uint8_t *>(&engine.mem_wdata);
            memory.pending.insert(memory.pending.end(), data, data + word);
        }
        if (has_word) memory.beats.pop_front();
        if (engine.mem_bvalid) memory.answers.pop_front();
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
