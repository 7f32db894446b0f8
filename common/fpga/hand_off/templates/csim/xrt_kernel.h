// What the host program uses of XRT, on the C++ of the kernels in this process instead of a card.
#pragma once

#include <dlfcn.h>

#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

enum xclBOSyncDirection { XCL_BO_SYNC_BO_TO_DEVICE, XCL_BO_SYNC_BO_FROM_DEVICE };

namespace xrt {

// The folder of the compiled designs.
struct uuid {
    std::string folder;
};

class device {
public:
    explicit device(unsigned int) {}
    uuid load_xclbin(const std::string &folder) { return {folder}; }
};

// A buffer with its memory on the card, which only sync copies.
class bo {
    std::vector<char> host, card;

public:
    bo(const device &, size_t size, int) : host(size), card(size) {}

    template <typename pointer_t>
    pointer_t map() {
        return reinterpret_cast<pointer_t>(host.data());
    }
    void sync(xclBOSyncDirection direction) { direction == XCL_BO_SYNC_BO_TO_DEVICE ? card = host : host = card; }
    void *memory() { return card.data(); }
};

typedef void (*simulated_t)(void *const *ports, int64_t program);

class kernel {
public:
    simulated_t function;

    // `name` is "design:{unit}"; the design is a library of its name.
    kernel(const device &, const uuid &designs, const std::string &name) {
        const std::string design = name.substr(0, name.find(':')), path = designs.folder + "/" + design + ".so";
        void *library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
        if (!library) throw std::runtime_error(dlerror());
        function = reinterpret_cast<simulated_t>(dlsym(library, "simulated"));
        if (!function) throw std::runtime_error(path + ": has no function `simulated`");
    }
    int group_id(int) const { return 0; }
};

class run {
    simulated_t function;
    std::vector<void *> ports;
    int64_t program;

public:
    explicit run(const kernel &of) : function(of.function), program(0) {}
    void set_arg(int, bo &port) { ports.push_back(port.memory()); }
    void set_arg(int, int64_t number) { program = number; }
    void start() { function(ports.data(), program); }
    void wait() {}
};

}  // namespace xrt
