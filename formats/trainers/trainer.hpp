#pragma once
// A training program on Megatron-core whose settings are read: the place of the fields that have Megatron-LM's names, its own names for
// others, and what its code sets. One file for each program.

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "formats/trainers/settings.hpp"
#include "plan/text/errors.hpp"

namespace mgplan::formats {

/// A job under the names of Megatron-LM's arguments (words_of_yaml_configuration), and what else its settings say.
struct TrainerJob {
    std::map<std::string, std::string, std::less<>> fields;
    std::map<std::string, std::string, std::less<>> names;  ///< by field, the setting that says it, as its file writes it
    std::string model;                                      ///< repository or path; "": none is named
    std::string config;                                     ///< the model's sizes as a Hugging Face config.json; "": none are stated
    std::optional<std::int64_t> world;                      ///< GPUs of the training, given or stated
    std::vector<std::string> notes;                         ///< sentences on what was assumed
    Problems problems;                                      ///< of settings that no field says, reported with those of the fields
};

/// A name of the program's own and the field of Megatron-LM that holds the same.
struct TrainerSetting {
    std::string_view name, field;
};

struct Trainer {
    std::string_view framework;  ///< as recognise() names it
    std::string_view source;     ///< repository and commit that the rows were read from
    /// Sections whose fields have Megatron-LM's names; blank-separated, "." is the top.
    std::string_view sections = "";
    std::span<const TrainerSetting> settings = {};
    std::span<const TrainerSetting> computed = {};  ///< settings from which finish() computes fields, as messages name them
    std::string_view fixed = "";                    ///< "field=value …" that its code sets where the settings do not
    std::string_view own = "";                      ///< fields of those sections that change no prediction
    std::string_view model = "";                    ///< names whose value is the model's
    bool adapters = false;                          ///< reads adapters, which Megatron-Bridge makes for it
    bool names_all = true;  ///< a field of the sections that is not known counts; false: they hold other settings too
    /// Returns false for settings of the program that train without Megatron-core.
    bool (*reads)(const Settings& settings) = nullptr;
    /// Adds what follows from several settings.
    void (*finish)(const Settings& settings, TrainerJob& job) = nullptr;
    /// Scope of the reader in words, for docs/what-mgplan-reads.md.
    std::string_view reads_model, reads_layout, reads_batch, reads_precision, reads_recompute, reads_optimizer;
};

/// Core's own defaults of TransformerConfig where a program builds it without Megatron-LM's command line, whose fusions are on
/// (core/transformer/transformer_config.py, d98e8a64).
inline constexpr std::string_view kCoreDefaults =
    "bias_activation_fusion=False bias_dropout_fusion=False apply_rope_fusion=False gradient_accumulation_fusion=False";

/// Names of a program's settings for the adapters that Megatron-Bridge makes for it (067f987d, peft/lora.py).
struct AdapterSettings {
    std::string_view rank, alpha, modules;
    std::string_view excluded;  ///< setting that lists modules without adapters
    std::string_view type;      ///< setting that names the variant of LoRA
    std::string_view dropout, dtype;
};
/// Adds the fields of adapters; a problem for those that cannot be planned.
void add_adapters(const Settings& settings, const AdapterSettings& names, TrainerJob& job);

/// Data-parallel size of the job's fields in its world; 1 if the world is not known.
[[nodiscard]] std::int64_t data_parallel_size(const TrainerJob& job);
/// Sets the world to nodes x GPUs of a node where it is not known and both settings are sensible numbers.
void settle_world(TrainerJob& job, std::optional<std::int64_t> nodes, std::optional<std::int64_t> gpus);
/// A field as a whole number, or `otherwise`.
[[nodiscard]] std::int64_t field_or(const TrainerJob& job, std::string_view field, std::int64_t otherwise);

extern const Trainer kAreal, kFlagScale, kGptNeox, kLlamaFactory, kNanotron, kNemo, kNemoRl, kPrimus, kRoll, kVerl;

/// All of them by name.
[[nodiscard]] std::span<const Trainer* const> trainers();

/// The job of a program's settings: nothing where no row reads that program, or its settings train without Megatron-core. Throws
/// ConfigError for settings that contradict themselves. `world`: the number of GPUs where it is given.
[[nodiscard]] std::optional<TrainerJob> trainer_job(std::string_view framework, const Settings& settings,
                                                    std::optional<std::int64_t> world);

}  // namespace mgplan::formats
