// A link as a pair of pipes: bytes from standard input, and bytes to standard output.
#pragma once
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <vector>

struct Line {
    std::vector<uint8_t> in, out;
    size_t taken = 0;

    // Return whether there is a byte; it waits for one.
    bool fill() {
        if (taken < in.size()) return true;
        flush();
        in.resize(65536);
        taken = 0;
        const ssize_t count = read(0, in.data(), in.size());
        in.resize(count > 0 ? count : 0);
        return count > 0;
    }

    void flush() {
        for (size_t done = 0; done < out.size();) {
            const ssize_t count = ::write(1, out.data() + done, out.size() - done);
            if (count <= 0) std::exit(0);
            done += count;
        }
        out.clear();
    }
};
