#pragma once
// Jobs from the settings of training programs on Megatron-core (formats/trainers): the model by the name or the sizes that they state, the
// rest as Megatron-LM's flags.

#include <cstdint>
#include <optional>
#include <string>

#include "formats/input/job.hpp"
#include "formats/megatron/megatron_arguments.hpp"
#include "formats/recognise/recognise.hpp"
#include "plan/text/errors.hpp"

namespace mgplan::formats {

struct TrainerRead {
    Job job{};                            ///< only without problems
    std::optional<std::int64_t> world{};  ///< GPUs that the settings state, or that were given; known whatever the problems are
    Problems problems{};                  ///< missing facts where the model is not known
};

/// recognise() of a text; of a settings file with the files in `folder` that it builds on ("defaults: base.yaml").
[[nodiscard]] std::optional<Recognised> recognise_file(const std::string& text, const std::string& name, const std::string& folder);

/// The job of a file or script of a program that is read (trainers()); nothing for all other texts, and for jobs of adapters. Files that it
/// takes defaults from are read in the folder of the surroundings. Throws ConfigError for a text that cannot be taken apart.
[[nodiscard]] std::optional<TrainerRead> read_trainer_text(const std::string& text, const std::string& name,
                                                           const MegatronSurroundings& surroundings);

}  // namespace mgplan::formats
