#pragma once
// Writes Megatron-LM's indexed datasets (format: runtime/data/indexed_dataset.hpp) for tests, whole or broken.

#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

namespace mgplan::tests {

template <class Number>
void append(std::string& bytes, Number value) {
    bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
}

inline void write_file(const std::string& path, const std::string& bytes) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

/// What the two files hold; Id is the type of the ids in the .bin file and `code` says so in the .idx file.
template <class Id>
struct IndexedFiles {
    std::uint8_t code;
    std::vector<std::vector<Id>> sequences;
    std::vector<std::int64_t> documents;  ///< first sequence of each, and the number of sequences; empty: one document each
    std::int64_t hole = 0;                ///< bytes behind each sequence

    [[nodiscard]] std::string data() const {
        std::string bytes;
        for (const auto& sequence : sequences) {
            for (const Id id : sequence) append(bytes, id);
            bytes.append(static_cast<std::size_t>(hole), '\x7f');
        }
        return bytes;
    }
    [[nodiscard]] std::string index() const {
        std::vector<std::int64_t> starts = documents;
        for (std::size_t i = 0; documents.empty() && i <= sequences.size(); ++i) starts.push_back(static_cast<std::int64_t>(i));
        std::string bytes("MMIDIDX\0\0", 9);
        append<std::uint64_t>(bytes, 1);
        append<std::uint8_t>(bytes, code);
        append<std::uint64_t>(bytes, sequences.size());
        append<std::uint64_t>(bytes, starts.size());
        for (const auto& sequence : sequences) append<std::int32_t>(bytes, static_cast<std::int32_t>(sequence.size()));
        std::int64_t pointer = 0;
        for (const auto& sequence : sequences) {
            append<std::int64_t>(bytes, pointer);
            pointer += static_cast<std::int64_t>(sequence.size() * sizeof(Id)) + hole;
        }
        for (const auto start : starts) append<std::int64_t>(bytes, start);
        return bytes;
    }
    void write(const std::string& prefix) const {
        write_file(prefix + ".bin", data());
        write_file(prefix + ".idx", index());
    }
};

}  // namespace mgplan::tests
