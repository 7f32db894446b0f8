// The card's memory behind AXI4.
//
// Memory serves bursts in their order, those of reads and of writes in turns. A burst waits until the data bus is free;
// a bank whose open row is another one is closed and opened first; at each refresh interval all rows are closed and
// nothing is served for a while. A word then takes `word_cycles` on the bus, and a read's first word comes `latency`
// cycles after its burst begins.
#pragma once
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <vector>

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
            const double end = std::max(next_refresh, free_at) + timing.refresh;  // a burst is not interrupted
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

    // Set the inputs of a design's port, which follow from the state before the cycle.
    template <class Top> void drive(Top &top, uint64_t word, double now) const {
        const bool has_word = !beats.empty() && beats.front().first <= now;
        top.mem_arready = reads.size() < 8;
        top.mem_awready = writes.size() < 8;
        top.mem_wready = pending.size() < 65536;
        top.mem_rvalid = has_word;
        if (has_word) std::memcpy(&top.mem_rdata, &bytes[beats.front().second], word);
        top.mem_bvalid = !answers.empty() && answers.front() <= now;
    }

    // Take what a design's port asks for in this cycle.
    template <class Top> void sample(Top &top, uint64_t word, bool runs) {
        if (runs && top.mem_arvalid && top.mem_arready) reads.push_back({top.mem_araddr, unsigned(top.mem_arlen) + 1});
        if (runs && top.mem_awvalid && top.mem_awready) writes.push_back({top.mem_awaddr, unsigned(top.mem_awlen) + 1});
        if (runs && top.mem_wvalid && top.mem_wready) {
            const uint8_t *data = reinterpret_cast<const uint8_t *>(&top.mem_wdata);
            pending.insert(pending.end(), data, data + word);
        }
        if (top.mem_rvalid && top.mem_rready) beats.pop_front();
        if (top.mem_bvalid) answers.pop_front();
    }
};
