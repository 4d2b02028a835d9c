#include "runtime/data/indexed_dataset.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <string_view>

#include <fmt/core.h>

#include "plan/text/errors.hpp"
#include "plan/text/text.hpp"

namespace mgplan::runtime {
namespace {

static_assert(std::endian::native == std::endian::little, "numbers are copied as they stand in the file");

constexpr std::string_view kMagic{"MMIDIDX\0\0", 9};
constexpr std::int64_t kHeader = 9 + 8 + 1 + 8 + 8;
constexpr std::size_t kChunk = std::size_t{1} << 16;  // entries of the index looked at together

struct IdType {
    std::string_view name;
    std::int64_t bytes;
    bool whole;
};
constexpr std::array kTypes{
    IdType{"", 0, false},     IdType{"uint8", 1, true},    IdType{"int8", 1, true},     IdType{"int16", 2, true},  IdType{"int32", 4, true},
    IdType{"int64", 8, true}, IdType{"float64", 8, false}, IdType{"float32", 4, false}, IdType{"uint16", 2, true},
};

template <class Number>
Number at(std::span<const std::byte> bytes, std::size_t offset) {
    Number value;
    std::memcpy(&value, bytes.data() + offset, sizeof(Number));
    return value;
}

std::int64_t id_at(std::span<const std::byte> bytes, std::size_t i, std::uint8_t code) {
    switch (code) {
        case 1:
            return at<std::uint8_t>(bytes, i);
        case 2:
            return at<std::int8_t>(bytes, i);
        case 3:
            return at<std::int16_t>(bytes, 2 * i);
        case 4:
            return at<std::int32_t>(bytes, 4 * i);
        case 8:
            return at<std::uint16_t>(bytes, 2 * i);
        default:
            return at<std::int64_t>(bytes, 8 * i);
    }
}

/// One array of the index, read a piece at a time.
template <class Number>
class Column {
public:
    Column(const FileBytes& file, std::int64_t begin, std::int64_t count) : file_(file), begin_(begin), count_(count) {}
    Number operator[](std::int64_t i) {
        if (i < first_ || i >= first_ + std::ssize(values_)) {
            first_ = i;
            values_.resize(static_cast<std::size_t>(std::min<std::int64_t>(static_cast<std::int64_t>(kChunk), count_ - i)));
            file_.read(begin_ + i * static_cast<std::int64_t>(sizeof(Number)), std::as_writable_bytes(std::span(values_)));
        }
        return values_[static_cast<std::size_t>(i - first_)];
    }

private:
    const FileBytes& file_;
    std::int64_t begin_, count_, first_ = 0;
    std::vector<Number> values_;
};

}  // namespace

IndexedDataset::IndexedDataset(const std::string& prefix, std::int64_t vocab)
    : index_(prefix + ".idx", "index"), data_(prefix + ".bin", "data file"), vocab_(vocab) {
    try {
        read_index();
    } catch (const RunError& error) {  // it changed while it was opened
        throw ConfigError(error.what());
    }
}

void IndexedDataset::read_index() {
    const auto refuse = [this](const std::string& what) {
        throw ConfigError(
            fmt::format("index {}: {}; write the dataset again (Megatron-LM: tools/preprocess_data.py)", index_.path(), what));
    };
    std::array<std::byte, kHeader> header{};
    const auto header_read = static_cast<std::size_t>(std::min<std::int64_t>(index_.size(), kHeader));
    index_.read(0, std::span(header).first(header_read));
    if (std::memcmp(header.data(), kMagic.data(), std::min(header_read, kMagic.size())) != 0)
        refuse("it does not begin with MMIDIDX, so it is no index of version 1");
    if (index_.size() < kHeader) refuse(fmt::format("it ends after {} of the {} bytes of its header", index_.size(), kHeader));
    if (const auto version = at<std::uint64_t>(header, 9); version != 1)
        refuse(fmt::format("version {} cannot be read, only version 1", version));
    code_ = at<std::uint8_t>(header, 17);
    if (code_ == 0 || code_ >= kTypes.size()) refuse(fmt::format("type code {} of its ids is not known; 1 to 5 and 8 are", code_));
    const IdType& type = kTypes[code_];
    if (!type.whole) refuse(fmt::format("its ids are of type {}, and token ids are whole numbers", type.name));
    const auto sequences = at<std::uint64_t>(header, 18), entries = at<std::uint64_t>(header, 26);
    // Counts beyond the file's size are refused before anything is multiplied.
    const auto size = static_cast<std::uint64_t>(index_.size());
    if (sequences > size / 12 || entries > size / 8 || static_cast<std::uint64_t>(kHeader) + 12 * sequences + 8 * entries > size)
        refuse(fmt::format("it has {} bytes, too few for the {} sequences and {} document indices that its header tells of", size,
                           sequences, entries));
    if (const std::uint64_t rest = size - static_cast<std::uint64_t>(kHeader) - 12 * sequences - 8 * entries;
        rest != 0 && rest != sequences)
        refuse(fmt::format("{} bytes lie behind its {} sequences and {} document indices, where it should end", rest, sequences, entries));
    sequences_ = static_cast<std::int64_t>(sequences);
    documents_ = std::max<std::int64_t>(0, static_cast<std::int64_t>(entries) - 1);

    Column<std::int32_t> lengths(index_, kHeader, sequences_);
    Column<std::int64_t> pointers(index_, kHeader + 4 * sequences_, sequences_);
    Column<std::int64_t> starts(index_, kHeader + 12 * sequences_, static_cast<std::int64_t>(entries));
    bool gapless = true;
    for (std::int64_t i = 0; i < sequences_; ++i) {
        const std::int64_t length = lengths[i], pointer = pointers[i];
        if (length < 0) refuse(fmt::format("sequence {} has {} tokens", i, length));
        if (pointer < 0 || pointer > data_.size() || length > (data_.size() - pointer) / type.bytes)
            refuse(fmt::format("sequence {} of {} tokens of {} begins at byte {}, which reaches outside {} of {} bytes", i, length,
                               type.name, pointer, data_.path(), data_.size()));
        gapless = gapless && pointer == tokens_ * type.bytes;
        if (!gapless && first_tokens_.empty()) {
            // From here on the start of each sequence is kept; the sequences before are contiguous.
            first_tokens_.push_back(0);
            first_bytes_.push_back(i == 0 ? pointer : 0);
        }
        if (!gapless && length > 0 && tokens_ > 0) {
            first_tokens_.push_back(tokens_);
            first_bytes_.push_back(pointer);
        } else if (!gapless && length > 0) {
            first_bytes_.back() = pointer;  // only empty sequences came before
        }
        if (tokens_ > (std::int64_t{1} << 56)) refuse("its sequences overlap to more than 2^56 tokens");
        tokens_ += length;
    }
    std::int64_t before = 0;
    for (std::int64_t i = 0; i < static_cast<std::int64_t>(entries); ++i) {
        const std::int64_t start = starts[i];
        if (start < before || start > sequences_ || (i == 0 && start != 0))
            refuse(fmt::format("document index {} is {}, and they run from 0 up to the number of sequences, {}", i, start, sequences_));
        before = start;
    }
}

void IndexedDataset::read_run(std::int64_t at_byte, std::int64_t first, std::span<std::int32_t> tokens) const {
    std::vector<std::byte> bytes(tokens.size() * static_cast<std::size_t>(kTypes[code_].bytes));
    data_.read(at_byte, bytes);
    for (std::size_t i = 0; i < tokens.size(); ++i) {
        const std::int64_t id = id_at(bytes, i, code_);
        if (id < 0 || id >= vocab_) {
            throw ConfigError(
                fmt::format("data file {}: token {} is {}, outside the vocabulary of {}; use the model that belongs to its tokenizer, or "
                            "tokenize it again",
                            data_.path(), first + static_cast<std::int64_t>(i), id, vocab_));
        }
        tokens[i] = static_cast<std::int32_t>(id);
    }
}

void IndexedDataset::read(std::int64_t first, std::span<std::int32_t> tokens) const {
    const std::int64_t bytes = kTypes[code_].bytes;
    if (first_tokens_.empty()) return read_run(first * bytes, first, tokens);
    auto piece = std::upper_bound(first_tokens_.begin(), first_tokens_.end(), first) - first_tokens_.begin() - 1;
    while (!tokens.empty()) {
        const auto index = static_cast<std::size_t>(piece);
        const std::int64_t end = index + 1 < first_tokens_.size() ? first_tokens_[index + 1] : tokens_;
        const auto count = static_cast<std::size_t>(std::min<std::int64_t>(end - first, std::ssize(tokens)));
        read_run(first_bytes_[index] + (first - first_tokens_[index]) * bytes, first, tokens.first(count));
        tokens = tokens.subspan(count);
        first += static_cast<std::int64_t>(count);
        ++piece;
    }
}

std::string IndexedDataset::text() const {
    return fmt::format("indexed dataset {}, {} tokens of {} in {} sequences and {} documents", data_.path(), with_thousands(tokens_),
                       kTypes[code_].name, with_thousands(sequences_), with_thousands(documents_));
}

}  // namespace mgplan::runtime
