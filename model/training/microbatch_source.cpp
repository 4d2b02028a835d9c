#include "model/training/microbatch_source.hpp"

#include <algorithm>
#include <string_view>

#include <fmt/format.h>

#include "model/layers/vocabulary.hpp"
#include "model/ops/dropout.hpp"
#include "model/ops/positions.hpp"
#include "plan/text/errors.hpp"

namespace mgplan::model {
namespace {

/// Every token is an input, a target, or both; all ranks that share a sequence see all of it and refuse it alike.
void check_ids(std::span<const std::int32_t> tokens, std::int64_t vocab, std::int64_t sequence) {
    const auto outside = std::find_if(tokens.begin(), tokens.end(), [&](std::int32_t id) { return id < 0 || id >= vocab; });
    if (outside == tokens.end()) return;
    const auto place = outside - tokens.begin();
    const std::string_view use = place == 0 ? "an input" : place + 1 == std::ssize(tokens) ? "a target" : "an input and a target";
    throw ConfigError(
        fmt::format("token {} of sequence {}, {}, has the id {}, outside the vocabulary of {}; check that data and model "
                    "belong together",
                    place, sequence, use, *outside, vocab));
}

}  // namespace

Positions MicrobatchSource::positions() const {
    return zigzag_positions(task_.batch.sequence, task_.layout.micro_batch, share_.cp_size, share_.cp_rank);
}

MicrobatchContext MicrobatchSource::context(std::int64_t step, std::int64_t index) const {
    MicrobatchContext context;
    context.batch = task_.layout.micro_batch;
    context.sequence = task_.batch.sequence;
    context.first_sequence = (index * task_.layout.dp() + share_.dp_rank) * context.batch;
    context.dropout_seed = task_.dropout_seed + static_cast<std::uint64_t>(step);
    context.step = step;
    context.index = index;
    return context;
}

Tensor MicrobatchSource::ids_named(std::string_view name) const {
    return device_.empty({positions().rows()}, Dtype::int32, MemoryCategory::activations, name);
}

void MicrobatchSource::write(const Microbatch& microbatch, const SequenceSource& source) const {
    if (!device_.computes()) return;
    const MicrobatchContext& context = microbatch.context;
    const Positions places = positions();
    // targets[0] are those of the next token.
    std::vector<Tensor> targets{microbatch.targets};
    targets.insert(targets.end(), context.mtp_targets.begin(), context.mtp_targets.end());
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(context.sequence + 1));
    std::vector<std::int32_t> ids(static_cast<std::size_t>(places.rows()));
    std::vector<std::vector<std::int32_t>> by_depth(targets.size(), ids);
    for (std::int64_t b = 0; b < context.batch; ++b) {
        const std::int64_t number = (context.step - 1) * task_.batch.global_batch + context.first_sequence + b;
        source(number, tokens);
        check_ids(tokens, task_.model.vocab, number);
        for (std::int64_t place = 0; place * context.batch < places.rows(); ++place) {
            const auto row = static_cast<std::size_t>(place * context.batch + b);
            const auto at = static_cast<std::size_t>(places.at(place));
            ids[row] = tokens[at];
            for (std::size_t depth = 0; depth < targets.size(); ++depth)
                by_depth[depth][row] = at + 1 + depth < tokens.size() ? tokens[at + 1 + depth] : -1;
        }
    }
    if (microbatch.ids.defined()) device_.write(microbatch.ids, ids.data());
    for (std::size_t depth = 0; depth < targets.size(); ++depth) {
        if (targets[depth].defined()) device_.write(targets[depth], by_depth[depth].data());
    }
}

Microbatch MicrobatchSource::make(std::int64_t step, std::int64_t index, const SequenceSource& source) const {
    Microbatch result;
    result.context = context(step, index);
    result.ids = ids_named("token ids");
    result.targets = ids_named("target ids");
    for (std::int64_t depth = 0; depth < share_.mtp_depths; ++depth) result.context.mtp_targets.push_back(ids_named("further target ids"));
    write(result, source);
    return result;
}

std::vector<Microbatch> MicrobatchSource::make_all(std::int64_t step, std::int64_t count, const SequenceSource& source) const {
    std::vector<Microbatch> all;
    Tensor places, words;
    if (share_.embedding && task_.model.position == PositionEmbedding::learned) places = position_ids(device_, positions());
    if (task_.model.hidden_dropout > 0)
        words = device_.empty({count * kDropoutWords}, Dtype::int32, MemoryCategory::workspace, "dropout seeds and offsets");
    for (std::int64_t index = 0; index < count; ++index) {
        Microbatch& next = all.emplace_back();
        next.context = context(step, index);
        if (share_.embedding) next.ids = ids_named("token ids");
        if (share_.loss) next.targets = ids_named("target ids");
        for (std::int64_t depth = 0; depth < share_.mtp_depths; ++depth)
            next.context.mtp_targets.push_back(ids_named("further target ids"));
        write(next, source);
        next.context.position_ids = places;
        if (words.defined()) {
            next.context.changing = words.slice(index * kDropoutWords, (index + 1) * kDropoutWords);
            write_dropout_words(next.context.changing, next.context.dropout_seed, next.context.first_sequence);
        }
    }
    return all;
}

std::vector<Tensor> inputs_of(const std::vector<Microbatch>& microbatches) {
    std::vector<Tensor> inputs;
    const auto add = [&](const Tensor& tensor) {
        const bool known = !tensor.defined() || std::any_of(inputs.begin(), inputs.end(),
                                                            [&](const Tensor& input) { return input.storage() == tensor.storage(); });
        if (!known) inputs.push_back(tensor);
    };
    for (const Microbatch& each : microbatches) {
        add(each.ids);
        add(each.targets);
        for (const Tensor& targets : each.context.mtp_targets) add(targets);
        add(each.context.position_ids);
        add(each.context.changing);
    }
    return inputs;
}

}  // namespace mgplan::model
