#pragma once
// Interface of a source of training tokens: one long row of token ids.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

namespace mgplan::runtime {

/// Read by any number of threads at once.
class TokenData {
public:
    virtual ~TokenData() = default;

    /// Number of tokens; nothing where there is no end.
    [[nodiscard]] virtual std::optional<std::int64_t> tokens() const = 0;
    /// The tokens from number `first` on, all inside the data. Throws ConfigError for an id outside the vocabulary, naming
    /// data, place and id; RunError when the data cannot be read any more.
    virtual void read(std::int64_t first, std::span<std::int32_t> tokens) const = 0;
    /// "text README.md, 1,234 tokens"
    [[nodiscard]] virtual std::string text() const = 0;
};

/// Opens a file: FILE.bin and FILE.idx (named by either, or by their common beginning) as Megatron-LM's indexed dataset,
/// anything else as text whose bytes are the token ids. Throws ConfigError with every problem, also for a text with a
/// vocabulary of fewer than 256 ids.
[[nodiscard]] std::unique_ptr<TokenData> open_token_data(const std::string& path, std::int64_t vocab);

}  // namespace mgplan::runtime
