#pragma once
// --assume: reads a model of an unknown type as one of a known type, and reports that.

#include <optional>
#include <string>

#include "cli/command.hpp"
#include "cli/options.hpp"
#include "formats/input/job.hpp"

namespace mgplan::cli {

/// Declares --assume, which takes the types that formats::read_hugging_face can assume.
void declare_assume_option(Options& options, std::optional<std::string>& assume);

/// Loads the model of --model, or what was given in its place (Options::contents), with what --assume says, and writes its notes to stderr.
[[nodiscard]] formats::Job load_noted_model(const std::string& cfg, const std::optional<std::string>& assume, Console& console);

/// Warns on stderr that the model of a saved plan was read as another type; does nothing if its type was known.
void note_assumed_architecture(const ModelSpec& model, Console& console);

/// Throws ConfigError for such a model, because the network that is `done` ("exported") would differ from the one in its file.
void refuse_assumed_architecture(const ModelSpec& model, std::string_view done);

}  // namespace mgplan::cli
