#pragma once
// The tokens of a step as one rank's passes read them.

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "model/pipeline/pipeline_executor.hpp"
#include "model/training/training_task.hpp"

namespace mgplan::model {

/// Writes sequence `index` of the whole run: batch.sequence + 1 token ids, of which the last is only a target.
using SequenceSource = std::function<void(std::int64_t index, std::span<std::int32_t> tokens)>;

/// The tokens of a rank, and those that its chunks read.
struct TokenShare {
    std::int64_t dp_rank = 0;
    int cp_size = 1, cp_rank = 0;
    bool embedding = false, loss = false;
    std::int64_t mtp_depths = 0;  ///< of this rank's chunks
};

/// One microbatch of a step is that of the same number on all ranks of dp, each with sequences of its own.
class MicrobatchSource {
public:
    MicrobatchSource(const TrainingTask& task, Device& device, const TokenShare& share) : task_(task), device_(device), share_(share) {}

    /// Microbatch `index` of a step, counted from 1: with ids and targets, whether or not a chunk reads them. Throws ConfigError for
    /// tokens outside the vocabulary.
    [[nodiscard]] Microbatch make(std::int64_t step, std::int64_t index, const SequenceSource& source) const;

    /// The first `count` microbatches at once, so that the passes find in device memory all data that differs from step to step: ids and
    /// targets that this rank's chunks read, places of learned positions, seed and offset of dropout. Throws as make() does.
    [[nodiscard]] std::vector<Microbatch> make_all(std::int64_t step, std::int64_t count, const SequenceSource& source) const;

private:
    [[nodiscard]] MicrobatchContext context(std::int64_t step, std::int64_t index) const;
    [[nodiscard]] Positions positions() const;
    [[nodiscard]] Tensor ids_named(std::string_view name) const;
    /// Into the tensors that are defined.
    void write(const Microbatch& microbatch, const SequenceSource& source) const;

    const TrainingTask& task_;
    Device& device_;
    TokenShare share_;
};

/// Returns the tensors that such microbatches read, one of each storage: microbatches may share tensors, or have slices of one.
[[nodiscard]] std::vector<Tensor> inputs_of(const std::vector<Microbatch>& microbatches);

}  // namespace mgplan::model
