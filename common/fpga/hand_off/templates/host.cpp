// Generated from an offload plan: run every call of the data on a card, and compare each result with the expected one.
//
//     host XCLBIN DATA [device]
//
// It compiles with the headers of XRT, and with those of csim/, which run the C++ of the kernels in this process. There,
// XCLBIN is the folder of the compiled designs.
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iostream>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "xrt/xrt_bo.h"
#include "xrt/xrt_device.h"
#include "xrt/xrt_kernel.h"

typedef std::vector<char> bytes_t;

static bytes_t content_of(const std::string &path) {
    std::ifstream file(path, std::ios::binary);
    if (!file) throw std::runtime_error(path + ": cannot be read");
    return bytes_t(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
}

// A kernel with the memory behind its ports. Word w of a tensor is on port w % ports, at its base + w / ports.
class card_kernel_t {
    size_t word_bytes;
    xrt::kernel array, converter;  // both on the same memory
    std::vector<xrt::bo> port;

    template <typename action_t>
    void each_word(int64_t base, size_t size, action_t action) {
        for (size_t at = 0; at < size; at += word_bytes) {
            const size_t word = at / word_bytes, count = size - at < word_bytes ? size - at : word_bytes;
            char *memory = port[word % port.size()].map<char *>();
            action(memory + (base + word / port.size()) * word_bytes, at, count);
        }
    }

    void sync(xclBOSyncDirection direction) {
        for (auto &each : port) each.sync(direction);
    }

public:
    card_kernel_t(const xrt::device &device, const xrt::uuid &uuid, const std::string &of_array,
                  const std::string &of_converter, size_t ports, size_t bytes, const bytes_t &image)
        : word_bytes(bytes), array(device, uuid, of_array), converter(device, uuid, of_converter) {
        const size_t words = image.size() / word_bytes / ports + 1;
        for (size_t n = 0; n < ports; ++n) port.emplace_back(device, words * word_bytes, array.group_id(int(n)));
        write(0, image);
        sync(XCL_BO_SYNC_BO_TO_DEVICE);
    }

    void write(int64_t base, const bytes_t &tensor) {
        each_word(base, tensor.size(), [&](char *memory, size_t at, size_t count) { std::memcpy(memory, &tensor[at], count); });
    }

    bytes_t read(int64_t base, size_t size) {
        bytes_t tensor(size);
        each_word(base, size, [&](char *memory, size_t at, size_t count) { std::memcpy(&tensor[at], memory, count); });
        return tensor;
    }

    void call(bool converts, int64_t program) {
        sync(XCL_BO_SYNC_BO_TO_DEVICE);
        xrt::run run(converts ? converter : array);
        for (size_t n = 0; n < port.size(); ++n) run.set_arg(int(n), port[n]);
        run.set_arg(int(port.size()), program);
        run.start();
        run.wait();
        sync(XCL_BO_SYNC_BO_FROM_DEVICE);
    }
};

// One call of the manifest. What an earlier call of this kernel left in the memory is read from there.
static size_t run_call(std::istream &manifest, const std::string &folder, std::map<std::string, card_kernel_t> &kernels,
                       std::map<std::string, bool> &is_there) {
    std::string name, kernel, role, kind, file;
    int64_t program, base;
    size_t reads, size;
    manifest >> name >> kernel >> role >> program >> reads;
    card_kernel_t &card = kernels.at(kernel);
    for (size_t n = 0; n < reads; ++n) {
        manifest >> kind >> base >> size >> file;
        if (!is_there[kernel + " " + std::to_string(base)]) card.write(base, content_of(folder + "/" + file));
    }
    manifest >> kind >> base >> size >> file;
    card.call(role == "converter", program);
    is_there[kernel + " " + std::to_string(base)] = true;
    const bytes_t found = card.read(base, size), expected = content_of(folder + "/" + file);
    size_t wrong = 0;
    for (size_t at = 0; at < size; ++at) wrong += found[at] != expected[at];
    std::cout << name << " on " << kernel << ": " << size - wrong << " of " << size << " equal\n";
    return wrong;
}

int main(int count, char **argument) {
    if (count < 3) {
        std::cerr << "usage: host XCLBIN DATA [device]\n";
        return 2;
    }
    try {
        const std::string folder = argument[2];
        std::ifstream manifest(folder + "/manifest.txt");
        if (!manifest) throw std::runtime_error(folder + "/manifest.txt: cannot be read");
        xrt::device device(count > 3 ? static_cast<unsigned>(std::stoul(argument[3])) : 0u);
        const xrt::uuid uuid = device.load_xclbin(std::string(argument[1]));
        std::map<std::string, card_kernel_t> kernels;
        std::map<std::string, bool> is_there;
        std::string word, name, design, unit, turning, turning_unit;
        size_t ports, bytes, wrong = 0, calls = 0;
        while (manifest >> word) {
            if (word == "kernel") {
                manifest >> name >> design >> unit >> turning >> turning_unit >> ports >> bytes;
                kernels.emplace(name, card_kernel_t(device, uuid, design + ":{" + unit + "}",
                                                    turning + ":{" + turning_unit + "}", ports, bytes,
                                                    content_of(folder + "/" + name + ".bin")));
            } else {
                wrong += run_call(manifest, folder, kernels, is_there);
                ++calls;
            }
        }
        std::cout << calls << " calls, " << wrong << " bytes differ\n";
        return wrong ? 1 : 0;
    } catch (const std::exception &problem) {
        std::cerr << "host: error: " << problem.what() << "\n";
        return 1;
    }
}
