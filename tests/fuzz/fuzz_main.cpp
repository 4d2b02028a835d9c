// The entry of libFuzzer for one reader, the one that MGPLAN_FUZZ_READER names.

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>

#include "readers.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string_view bytes(reinterpret_cast<const char*>(data), size);
    for (const auto& reader : mgplan::fuzz::readers()) {
        if (reader.name != MGPLAN_FUZZ_READER) continue;
        try {
            mgplan::fuzz::takes(reader, bytes);
        } catch (const std::exception& error) {
            std::fprintf(stderr, "%s\n", error.what());
            std::abort();
        }
    }
    return 0;
}
