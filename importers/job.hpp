#pragma once
// What a user's file says: always a model; from Megatron-LM arguments also batch, layout and training options.

#include <optional>
#include <string>
#include <vector>

#include "plan/batch_spec.hpp"
#include "plan/layout_request.hpp"
#include "plan/model_spec.hpp"
#include "plan/training_spec.hpp"

namespace mgplan::importers {

struct Job {
    ModelSpec model;
    std::optional<BatchSpec> batch;
    std::optional<LayoutRequest> layout;
    std::optional<TrainingSpec> training;
    std::vector<std::string> unused_fields;          ///< that a Hugging Face config states and nothing here reads
    std::vector<std::string> assumptions;            ///< sentences on what the file left open
    std::vector<std::string> features_not_computed;  ///< asked for by flags and not predicted: "Megatron FSDP (--use-megatron-fsdp)"
    std::vector<std::string> flags_without_effect;   ///< known flags that do not change a prediction
    std::vector<std::string> unknown_flags;          ///< with their words up to the next "--"
    std::vector<std::string> notes;                  ///< sentences on what only running a script would tell
};

}  // namespace mgplan::importers
