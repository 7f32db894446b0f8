// A system's clock, its memory, and its link: bytes from standard input, and bytes to standard output.
//
// Where the system takes a byte and there is none, the clock stands still until one comes. So what happens in which cycle
// follows from the bytes alone.
#include "Vsystem.h"
#include "line.h"
#include "memory.h"
#include "verilated.h"

int main(int argc, char **argv) {
    if (argc != 10) return 3;
    const uint64_t word = std::strtoull(argv[1], nullptr, 10);
    Memory memory({std::atof(argv[3]), std::atof(argv[4]), std::atof(argv[5]), std::atof(argv[6]), std::atof(argv[7]),
                   std::strtoull(argv[8], nullptr, 10), std::strtoull(argv[9], nullptr, 10)});
    memory.bytes.resize(std::strtoull(argv[2], nullptr, 10));
    VerilatedContext context;
    Vsystem system{&context};
    Line line;
    for (uint64_t cycle = 0;; ++cycle) {
        const bool runs = cycle >= 512;
        system.rst = !runs;
        system.out_ready = 1;
        system.in_valid = 0;
        memory.drive(system, word, double(cycle));
        system.clk = 0;
        system.eval();
        if (runs && system.in_ready) {
            if (!line.fill()) break;
            system.in_valid = 1;
            system.in_byte = line.in[line.taken++];
            system.eval();
        }
        memory.sample(system, word, runs);
        if (runs && system.out_valid) line.out.push_back(system.out_byte);
        memory.serve(word, double(cycle));
        system.clk = 1;
        system.eval();
    }
    line.flush();
    return 0;
}
