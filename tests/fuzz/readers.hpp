#pragma once
// Every reader of input from outside, as one function of bytes: for fuzzing (fuzz_main.cpp) and for the corpus in the tree
// (corpus_test.cpp).

#include <span>
#include <string_view>

namespace mgplan::fuzz {

struct Reader {
    std::string_view name;  ///< also the folder of its corpus
    /// Reads the bytes, and what it made of them again where it can be written. Throws ConfigError for what is refused.
    void (*read)(std::string_view bytes);
};

[[nodiscard]] std::span<const Reader> readers();

/// Whether the reader takes the bytes. Throws std::logic_error where it breaks a promise: another exception than ConfigError, a
/// refusal without a message, messages without bound, or a value that is another one after writing and reading.
bool takes(const Reader& reader, std::string_view bytes);

}  // namespace mgplan::fuzz
