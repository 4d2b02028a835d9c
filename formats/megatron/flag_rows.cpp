#include "formats/megatron/flag_rows.hpp"

#include <algorithm>

#include "plan/parameters/model_adapter.hpp"

namespace mgplan::formats {
namespace {

/// The spelling that the command has.
std::string given_name(const FlagReader& flags, const FlagRow& row) {
    const auto names = flags_of(row);
    for (const RowFlag& one : names) {
        if (flags.has(fmt::format("--{}", one.name))) return fmt::format("--{}", one.name);
    }
    return fmt::format("--{}", names.front().name);
}

class RowReader {
public:
    RowReader(FlagReader& flags, const FlagRow& row, Job& job) : flags_(flags), flag_(given_name(flags, row)), job_(job) {}

    void operator()(const Real& row) const {
        double& field = row.field(job_);
        field = flags_.real_or(flag_, row.fallback.value_or(field), row.low, row.high);
    }
    template <class Number>
    void operator()(const NumberRow<Number>& row) const {
        Number& field = row.field(job_);
        field = static_cast<Number>(flags_.integer_or(flag_, row.fallback.value_or(field), row.low, row.high));
    }
    void operator()(const Stated& row) const { row.field(job_) = flags_.integer(flag_, row.low, row.high); }
    void operator()(const Switch& row) const { row.field(job_) = flags_.has(flag_) == row.given; }
    template <class Value>
    void operator()(const Word<Value>& row) const {
        const Choices<Value> words(row.words.begin(), row.words.end());
        row.field(job_) = row.others ? flags_.choice_or_other(flag_, row.fallback, words) : flags_.choice(flag_, row.fallback, words);
    }
    void operator()(const Both& row) const { row.read(flags_, job_); }

private:
    FlagReader& flags_;
    std::string flag_;
    Job& job_;
};

template <class Value>
std::string_view word_of(const Word<Value>& row, Value value) {
    for (const auto& [word, meaning] : row.words) {
        if (meaning == value) return word;
    }
    if constexpr (requires { to_string(value); })
        return to_string(value);  // the reader says which there are
    else
        return row.words.front().first;
}

class RowWriter {
public:
    RowWriter(FlagWriter& out, const FlagRow& row, Job& job) : out_(out), row_(row), name_(flags_of(row).front().name), job_(job) {}

    void operator()(const Real& row) const {
        if (asked(row)) out_.real(name_, row.field(job_));
    }
    template <class Number>
    void operator()(const NumberRow<Number>& row) const {
        if (asked(row)) out_.integer(name_, row.field(job_));
    }
    void operator()(const Stated& row) const {
        if (const auto& value = row.field(job_)) out_.integer(name_, *value);
    }
    void operator()(const Switch& row) const { out_.flag_if(row.field(job_) == row.given, name_); }
    template <class Value>
    void operator()(const Word<Value>& row) const {
        if (asked(row)) out_.word(name_, word_of(row, row.field(job_)));
    }
    void operator()(const Both& row) const { row.write(out_, job_); }

private:
    template <class Kind>
    [[nodiscard]] bool asked(const Kind& row) const {
        return row_.written == Written::always || row.fallback != row.field(job_);
    }

    FlagWriter& out_;
    const FlagRow& row_;
    std::string_view name_;
    Job& job_;
};

template <class>
inline constexpr FlagArity kArity = FlagArity::one;
template <>
inline constexpr FlagArity kArity<Switch> = FlagArity::none;

}  // namespace

std::vector<RowFlag> flags_of(const FlagRow& row) {
    const bool marked = std::holds_alternative<Both>(row.kind);
    const FlagArity of_kind = std::visit([](const auto& kind) { return kArity<std::decay_t<decltype(kind)>>; }, row.kind);
    std::vector<RowFlag> flags;
    for (std::string_view rest = row.names; !rest.empty();) {
        const auto end = std::min(rest.find(' '), rest.size());
        std::string_view name = rest.substr(0, end);
        rest.remove_prefix(std::min(end + 1, rest.size()));
        const std::string_view mark = name.substr(std::min(name.find('='), name.size()));
        name.remove_suffix(mark.size());
        const FlagArity arity = mark.empty() ? FlagArity::none : mark == "=" ? FlagArity::one : FlagArity::many;
        flags.push_back({name, marked ? arity : of_kind});
    }
    return flags;
}

void read_row(FlagReader& flags, const FlagRow& row, Job& job) {
    if (row.heeded == nullptr || row.heeded(job)) std::visit(RowReader(flags, row, job), row.kind);
}

void read_topic(FlagReader& flags, const FlagTopic& topic, Job& job) {
    if (topic.exists != nullptr && !topic.exists(job)) return;
    for (const FlagRow& row : topic.rows) read_row(flags, row, job);
}

void write_row(FlagWriter& out, const FlagRow& row, Job& job) {
    if (row.beside == nullptr || row.beside(job)) std::visit(RowWriter(out, row, job), row.kind);
}

void write_topic(FlagWriter& out, const FlagTopic& topic, Job& job) {
    if (topic.exists != nullptr && !topic.exists(job)) return;
    for (const FlagRow& row : topic.rows) write_row(out, row, job);
}

Job job_of(const Plan& plan) {
    Job job;
    job.model = with_stated_fields(plan.model);
    job.model.default_sequence = plan.batch.sequence;
    job.model.max_positions = std::max(job.model.max_positions, plan.batch.sequence);
    job.model.default_global_batch = plan.batch.global_batch;
    job.layout = request_of(plan.layout);
    job.training = plan.training;
    job.training->megatron.precision_aware_optimizer = needs_aware_optimizer(plan.training);
    return job;
}

const std::vector<FlagPart>& flag_parts() {
    static const std::vector<FlagPart> parts{
        {"model",
         {kLayerTopic, kSizeTopic, kAttentionTopic, kLatentTopic, kHeadTopic, kSequenceTopic, kPositionTopic, kYarnTopic, kScalingTopic,
          kMlpTopic, kNormTopic, kVocabularyTopic, kDropoutTopic, kStreamTopic, kMixtureTopic}},
        {"layout", {kParallelTopic, kBatchTopic, kRecomputeTopic, kGraphTopic}},
        {"training",
         {kPrecisionTopic, kOptimizerTopic, kShardingTopic, kMomentTopic, kWeightShardTopic, kOverlapTopic, kAttentionKernelTopic,
          kKernelTopic, kExpertBufferTopic, kSwitchTopic, kOffloadingTopic}}};
    return parts;
}

}  // namespace mgplan::formats
