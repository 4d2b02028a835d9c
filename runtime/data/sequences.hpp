#pragma once
// The tokens of sequence number i of a run: a function of data and seed alone, so that batches do not depend on the
// layout and every rank reads only its own share.

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "runtime/data/token_data.hpp"

namespace mgplan::runtime {

/// Data of T tokens holds n = (T - 1) / s samples of s + 1 tokens; sample k begins at token k·s, so that its last token,
/// only a target, is the first of the next (as Megatron-LM's GPTDataset; the up to s tokens after the last sample are not
/// used). Sequence i of the run is in epoch i / n the place i % n; every epoch visits each sample once, in an order of its
/// own that the seed decides. Endless data is read in its own order.
class Sequences {
public:
    /// `sequence`: s; `global_batch`: sequences of one step. Throws ConfigError when the data has fewer tokens than
    /// global_batch·s + 1, which one step needs.
    Sequences(std::shared_ptr<const TokenData> data, std::int64_t sequence, std::int64_t global_batch, std::uint64_t seed);

    /// Sequence `index` >= 0 of the run: s + 1 token ids. Throws as TokenData::read. Any thread.
    void read(std::int64_t index, std::span<std::int32_t> tokens) const;
    /// The sample that sequence `index` is.
    [[nodiscard]] std::int64_t sample(std::int64_t index) const;
    /// n; 0 where there is no end.
    [[nodiscard]] std::int64_t samples() const { return samples_; }

private:
    std::shared_ptr<const TokenData> data_;
    std::int64_t sequence_;
    std::int64_t samples_ = 0;
    std::uint64_t seed_;
};

}  // namespace mgplan::runtime
