#pragma once
// Megatron-LM's indexed dataset: FILE.bin holds token ids, FILE.idx says where each sequence lies. Version 1 of the format
// of megatron/core/datasets/indexed_dataset.py (_IndexWriter, _IndexReader), all numbers little-endian:
//
//   9 bytes   "MMIDIDX\0\0"
//   u64       version, 1
//   u8        type of the ids: 1 uint8, 2 int8, 3 int16, 4 int32, 5 int64, 6 float64, 7 float32, 8 uint16
//   u64       number of sequences
//   u64       number of document indices (documents + 1)
//   i32 each  length of a sequence in tokens
//   i64 each  byte of FILE.bin at which a sequence begins
//   i64 each  number of the sequence with which a document begins; the last is the number of sequences
//   i8 each   mode of a sequence (multimodal datasets alone); not read

#include <vector>

#include "runtime/data/file_bytes.hpp"
#include "runtime/data/token_data.hpp"

namespace mgplan::runtime {

/// All sequences in the order of the index as one row of tokens. The whole index is checked when it is opened.
class IndexedDataset final : public TokenData {
public:
    /// `prefix`: the path without ".bin" and ".idx". Throws ConfigError with every problem.
    IndexedDataset(const std::string& prefix, std::int64_t vocab);

    [[nodiscard]] std::optional<std::int64_t> tokens() const override { return tokens_; }
    void read(std::int64_t first, std::span<std::int32_t> tokens) const override;
    [[nodiscard]] std::string text() const override;
    [[nodiscard]] std::int64_t sequences() const { return sequences_; }
    [[nodiscard]] std::int64_t documents() const { return documents_; }

private:
    void read_index();
    /// Reads contiguous tokens from this byte on.
    void read_run(std::int64_t at_byte, std::int64_t first, std::span<std::int32_t> tokens) const;

    FileBytes index_;
    FileBytes data_;
    std::int64_t vocab_;
    std::uint8_t code_ = 0;
    std::int64_t sequences_ = 0;
    std::int64_t documents_ = 0;
    std::int64_t tokens_ = 0;
    // For files whose sequences are not contiguous: first token and first byte of each. Megatron-LM's writer
    // leaves no holes, so these are mostly empty.
    std::vector<std::int64_t> first_tokens_, first_bytes_;
};

}  // namespace mgplan::runtime
