#include "runtime/data/byte_text.hpp"

#include <vector>

#include <fmt/core.h>

#include "plan/text/errors.hpp"
#include "plan/text/text.hpp"

namespace mgplan::runtime {

ByteText::ByteText(const std::string& path, std::int64_t vocab) : file_(path, "data file") {
    if (vocab < 256) {
        throw ConfigError(fmt::format(
            "data file {} is read as text, whose bytes are token ids up to 255, and the model has a vocabulary of {}; use a model with a "
            "vocabulary of at least 256, or an indexed dataset (FILE.bin and FILE.idx)",
            path, vocab));
    }
}

void ByteText::read(std::int64_t first, std::span<std::int32_t> tokens) const {
    std::vector<std::byte> bytes(tokens.size());
    file_.read(first, bytes);
    for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = std::to_integer<std::int32_t>(bytes[i]);
}

std::string ByteText::text() const {
    return fmt::format("text {}, {} tokens of one byte", file_.path(), with_thousands(file_.size()));
}

}  // namespace mgplan::runtime
