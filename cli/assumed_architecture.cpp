#include "cli/assumed_architecture.hpp"

#include <ostream>
#include <string_view>

#include <fmt/core.h>

#include "formats/model_source.hpp"
#include "plan/text/errors.hpp"

namespace mgplan::cli {

void declare_assume_option(Options& options, std::optional<std::string>& assume) {
    options.choice("assume", assume, {"llama"},
                   "read a Hugging Face config of an unknown model_type as this type; every output says so, and export refuses it "
                   "(default: refuse such a config)");
}

formats::Job load_noted_model(const std::string& cfg, const std::optional<std::string>& assume, Console& console) {
    const formats::ModelReading how{.vocab = {}, .assume = assume.value_or("")};
    const auto given = console.texts.find("model");
    formats::Job job = given == console.texts.end() ? formats::load_model(cfg, how)
                                                    : formats::read_model_text(given->second.text, given->second.name, how);
    for (const auto& note : job.notes) console.err << "mgplan: " << note << "\n";
    return job;
}

void note_assumed_architecture(const ModelSpec& model, Console& console) {
    if (model.assumed_architecture.empty()) return;
    console.err << fmt::format("mgplan: {}: model_type {} was read as {} (--assume), so this may be another network\n", model.name,
                               model.type, model.assumed_architecture);
}

void refuse_assumed_architecture(const ModelSpec& model, std::string_view done) {
    if (model.assumed_architecture.empty()) return;
    throw ConfigError(
        fmt::format("plan: model_type {} was read as {} (--assume), and another network than its file describes is not {}; plan a model "
                    "whose type is known",
                    model.type, model.assumed_architecture, done));
}

}  // namespace mgplan::cli
