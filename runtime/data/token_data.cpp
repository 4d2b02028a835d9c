#include "runtime/data/token_data.hpp"

#include <filesystem>
#include <system_error>
#include <vector>

#include <fmt/core.h>

#include "plan/text/errors.hpp"
#include "plan/text/text.hpp"
#include "runtime/data/file_bytes.hpp"
#include "runtime/data/indexed_dataset.hpp"

namespace mgplan::runtime {
namespace {

/// A text file whose bytes are the token ids, 0 to 255, so that no tokenizer is needed.
class ByteText final : public TokenData {
public:
    ByteText(const std::string& path, std::int64_t vocab);

    [[nodiscard]] std::optional<std::int64_t> tokens() const override { return file_.size(); }
    void read(std::int64_t first, std::span<std::int32_t> tokens) const override;
    [[nodiscard]] std::string text() const override;

private:
    FileBytes file_;
};

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

}  // namespace

std::unique_ptr<TokenData> open_token_data(const std::string& path, std::int64_t vocab) {
    std::error_code ignored;  // whatever is wrong with the path is said when it is opened
    if (path.ends_with(".bin") || path.ends_with(".idx")) return std::make_unique<IndexedDataset>(path.substr(0, path.size() - 4), vocab);
    if (!std::filesystem::exists(path, ignored) && std::filesystem::exists(path + ".idx", ignored))
        return std::make_unique<IndexedDataset>(path, vocab);
    return std::make_unique<ByteText>(path, vocab);
}

}  // namespace mgplan::runtime
