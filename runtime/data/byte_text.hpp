#pragma once
// A text file whose bytes are the token ids, 0 to 255: no tokenizer needed.

#include "runtime/data/file_bytes.hpp"
#include "runtime/data/token_data.hpp"

namespace mgplan::runtime {

class ByteText final : public TokenData {
public:
    /// Throws ConfigError for a file that cannot be opened and a vocabulary of fewer than 256 ids.
    ByteText(const std::string& path, std::int64_t vocab);

    [[nodiscard]] std::optional<std::int64_t> tokens() const override { return file_.size(); }
    void read(std::int64_t first, std::span<std::int32_t> tokens) const override;
    [[nodiscard]] std::string text() const override;

private:
    FileBytes file_;
};

}  // namespace mgplan::runtime
