// Clock and nothing else: the bench says when it is done.
#include "Vbenches.h"
#include "verilated.h"

int main() {
    VerilatedContext context;
    Vbenches bench{&context};
    for (unsigned long half = 0; !bench.done; ++half) {
        if (half / 2 > LIMIT_CYCLES) return 2;
        bench.clk = half & 1;
        bench.eval();
    }
    return 0;
}
