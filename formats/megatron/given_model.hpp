#pragma once
// A command that states a layout and no model, next to a model that is named by itself: launchers that add the model's flags (slime, miles,
// ms-swift), overrides of a recipe. The model becomes flags, so that one reader and one set of rules serve both.

#include <string>

#include "formats/input/job.hpp"
#include "formats/megatron/megatron_flags.hpp"
#include "plan/text/errors.hpp"

namespace mgplan::formats {

/// Adds the flags of the model that the command does not state. Throws ConfigError if the command states sizes of a model, too.
void add_given_model(ParsedFlags& parsed, const ModelSpec& model, const std::string& where);

/// Puts the model into the job that was read with add_given_model(), with what the command says of lengths, batch, dropout and expert
/// kernels. Flags by which the command describes another network become problems.
void take_given_model(Job& job, const ModelSpec& model, const std::string& where, Problems& problems);

}  // namespace mgplan::formats
