#pragma once
// The table of Megatron-LM's flags that say what fields of ours say. A row is read from a command and written to one, so that no flag has
// one direction alone; a flag is added as one row. Rows are in the order in which they are written.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <fmt/format.h>

#include "formats/megatron/flag_reader.hpp"
#include "formats/megatron/megatron_job.hpp"

namespace mgplan::formats {

/// Collects the flags of a plan.
class FlagWriter {
public:
    explicit FlagWriter(const Plan& plan, std::optional<MegatronVersion> version = {}) : plan_(plan), version_(version) {}

    void flag(std::string_view name, std::vector<std::string> values = {}) {
        flags_.push_back({fmt::format("--{}", name), std::move(values)});
    }
    void flag_if(bool wanted, std::string_view name) {
        if (wanted) flag(name);
    }
    void integer(std::string_view name, std::int64_t value) { flag(name, {fmt::format("{}", value)}); }
    void word(std::string_view name, std::string_view value) { flag(name, {std::string(value)}); }
    /// The shortest decimal that reads back the same.
    void real(std::string_view name, double value) { flag(name, {fmt::format("{}", value)}); }
    [[nodiscard]] const Plan& plan() const { return plan_; }
    /// The version that the flags are for; nothing: any that has them.
    [[nodiscard]] std::optional<MegatronVersion> version() const { return version_; }
    [[nodiscard]] std::vector<MegatronFlag> take() { return std::move(flags_); }

private:
    const Plan& plan_;
    std::optional<MegatronVersion> version_;
    std::vector<MegatronFlag> flags_;
};

/// Returns a value's field: in the job that a command is read into, and in the job that job_of() makes of a plan.
template <class Value>
using Field = Value& (*)(Job&);
using Asks = bool (*)(const Job&);

/// A member of the job, as in MGPLAN_FIELD(model.hidden).
#define MGPLAN_FIELD(path) ([](Job & job) -> auto& { return job.path; })

/// A number within bounds. `fallback`: what it is without the flag; nothing: what the field holds already.
template <class Number>
struct NumberRow {
    Field<Number> field;
    std::optional<Number> fallback;
    Number low, high;
};
using Whole = NumberRow<std::int64_t>;
using Real = NumberRow<double>;

/// A whole number that may be left open.
struct Stated {
    Field<std::optional<std::int64_t>> field;
    std::int64_t low, high;
};

/// A flag without a value: the field is `given` if the command has the flag, and the opposite if not.
struct Switch {
    Field<bool> field;
    bool given = true;
};

/// A word for each value. Of two words for one value the first is written. `others`: words that are not named mean the fallback, else they
/// are problems.
template <class Value>
struct Word {
    Field<Value> field;
    Value fallback;
    std::span<const std::pair<std::string_view, Value>> words;
    bool others = false;
};

/// Flags that say several fields at once, or fields that follow from others.
struct Both {
    void (*read)(FlagReader&, Job&);
    void (*write)(FlagWriter&, const Job&);
};

enum class Written : std::uint8_t { changed, always };

struct FlagRow {
    /// Without "--". Of one field: the flag and, after a blank, its former name, which is read too. Of Both: all flags that it writes or
    /// reads by itself, followed by "=" if they take a value, by "=+" if they take several.
    std::string_view names;
    std::variant<Whole, Real, NumberRow<int>, Stated, Switch, Word<bool>, Word<Dtype>, Word<std::optional<Dtype>>, Word<Normalization>,
                 Word<RouterScore>, Word<Recompute>, Word<RecomputeMethod>, Word<Fp8Recipe>, Word<ShardingStrategy>, Both>
        kind;
    Written written = Written::changed;  ///< a number or a word: where it differs from its fallback, or wherever `beside` allows
    Asks beside = nullptr;               ///< where it is written at all; nullptr: everywhere
    Asks heeded = nullptr;               ///< where it is read at all; nullptr: everywhere
};

/// Rows of one topic. `exists`: whether the job has the fields that they stand for; nullptr: each has.
struct FlagTopic {
    std::span<const FlagRow> rows;
    Asks exists = nullptr;
};

/// Reads a topic's flags in the order of its rows into a job with layout and training; what is wrong with them becomes problems.
void read_topic(FlagReader& flags, const FlagTopic& topic, Job& job);
void read_row(FlagReader& flags, const FlagRow& row, Job& job);
/// Writes a job that job_of() made. Throws ConfigError for what Megatron-LM does not train: fp64, layers that it has no flags for.
void write_topic(FlagWriter& out, const FlagTopic& topic, Job& job);
void write_row(FlagWriter& out, const FlagRow& row, Job& job);

/// The flags of a row and how many values they take.
struct RowFlag {
    std::string_view name;
    FlagArity arity;
};
[[nodiscard]] std::vector<RowFlag> flags_of(const FlagRow& row);

/// The plan's settings as a command states them.
[[nodiscard]] Job job_of(const Plan& plan);

[[nodiscard]] inline bool is_mixture(const Job& job) {
    return job.model.moe.has_value();
}
/// A plan of mgplan's own engine may offload what Megatron-LM does not (plan/layout/megatron_offload.hpp): no flag says that.
[[nodiscard]] bool exports_host_optimizer(const TrainingSpec& training);
/// Types of state are the precision-aware optimizer's, which an optimizer on the host needs too.
[[nodiscard]] bool needs_aware_optimizer(const TrainingSpec& training);

// Each topic's file has its rows, and the functions of those that need some.
extern const FlagTopic kLayerTopic;                                                       ///< megatron_hybrid_flags.cpp
extern const FlagTopic kSizeTopic, kNormTopic, kDropoutTopic;                             ///< megatron_model.cpp
extern const FlagTopic kAttentionTopic, kLatentTopic, kHeadTopic;                         ///< megatron_attention.cpp
extern const FlagTopic kSequenceTopic, kPositionTopic;                                    ///< megatron_positions.cpp
extern const FlagTopic kYarnTopic, kScalingTopic;                                         ///< megatron_positions.cpp
extern const FlagTopic kMlpTopic;                                                         ///< megatron_mlp.cpp
extern const FlagTopic kVocabularyTopic;                                                  ///< megatron_vocabulary.cpp
extern const FlagTopic kStreamTopic;                                                      ///< megatron_streams.cpp
extern const FlagTopic kMixtureTopic;                                                     ///< megatron_mixture.cpp
extern const FlagTopic kParallelTopic;                                                    ///< megatron_layout.cpp
extern const FlagTopic kBatchTopic;                                                       ///< megatron_rules.cpp
extern const FlagTopic kRecomputeTopic, kGraphTopic;                                      ///< megatron_recompute.cpp
extern const FlagTopic kPrecisionTopic;                                                   ///< megatron_precision.cpp
extern const FlagTopic kOptimizerTopic, kMomentTopic;                                     ///< megatron_optimizer.cpp
extern const FlagTopic kShardingTopic;                                                    ///< megatron_fully_sharded.cpp
extern const FlagTopic kWeightShardTopic;                                                 ///< megatron_weight_shards.cpp
extern const FlagTopic kOverlapTopic, kAttentionKernelTopic, kKernelTopic, kSwitchTopic;  ///< megatron_switches.cpp
extern const FlagTopic kExpertBufferTopic;                                                ///< megatron_expert_buffers.cpp
extern const FlagTopic kOffloadingTopic;                                                  ///< megatron_offloading.cpp

/// The topics under one heading of a written command.
struct FlagPart {
    std::string_view title;
    std::vector<FlagTopic> topics;
};
/// All rows in the order in which they are written.
[[nodiscard]] const std::vector<FlagPart>& flag_parts();

}  // namespace mgplan::formats
