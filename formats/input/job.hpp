#pragma once
// Content of a user's file: always a model; from Megatron-LM arguments also batch, layout and training options.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "formats/input/flag_account.hpp"
#include "plan/layout/layout_request.hpp"
#include "plan/model/model_spec.hpp"
#include "plan/training/batch_schedule.hpp"
#include "plan/training/batch_spec.hpp"
#include "plan/training/training_spec.hpp"

namespace mgplan::formats {

struct Job {
    ModelSpec model;
    std::optional<BatchSpec> batch;
    /// --max-seqlen-per-dp-cp-rank if each document runs over the number of ranks that it needs (--hybrid-context-parallel).
    std::optional<std::int64_t> most_of_a_document;
    BatchSchedule batches;  ///< of a Megatron-LM command: how the batch grows, and how long training goes on
    std::optional<LayoutRequest> layout;
    std::optional<TrainingSpec> training;
    std::vector<std::string> unused_fields;  ///< that a Hugging Face config states and nothing here reads
    std::vector<std::string> assumptions;    ///< sentences on what the file left open
    FlagAccount flags;                       ///< of a Megatron-LM command: what became of each flag
    std::optional<std::int64_t> world;       ///< ranks that a launch starts, where it states them …
    std::string world_source;                ///< … and how: "torchrun: 2 nodes of 8"
    std::vector<std::string> notes;          ///< sentences on facts that only a run of the script would reveal
};

}  // namespace mgplan::formats
