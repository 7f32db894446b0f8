// The clock of a LiteX system, whose memory is inside, and its link. As in main.cpp, the clock stands still until a byte
// comes.
#include "Vlitex_system.h"
#include "line.h"
#include "verilated.h"

int main() {
    VerilatedContext context;
    Vlitex_system system{&context};
    Line line;
    system.sim_trace = 0;
    system.serial_source_ready = 1;
    for (uint64_t cycle = 0;; ++cycle) {
        system.serial_sink_valid = 0;
        system.sys_clk = 0;
        system.eval();
        if (cycle >= 600 && system.serial_sink_ready) {  // the engine was reset
            if (!line.fill()) break;
            system.serial_sink_valid = 1;
            system.serial_sink_data = line.in[line.taken++];
            system.eval();
        }
        if (system.serial_source_valid) line.out.push_back(system.serial_source_data);
        system.sys_clk = 1;
        system.eval();
    }
    line.flush();
    return 0;
}
