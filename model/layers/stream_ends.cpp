#include "model/layers/stream_ends.hpp"

#include <utility>

#include <fmt/core.h>

#include "model/ops/alternating_updates.hpp"
#include "model/ops/elementwise.hpp"
#include "model/ops/stream_mixing.hpp"

namespace mgplan::model {
namespace {

std::vector<DuplicatedLinear> maps_of(std::int64_t streams, const WeightTable& weights, std::string_view prefix) {
    std::vector<DuplicatedLinear> maps;
    for (std::int64_t i = 1; i < streams; ++i) maps.emplace_back(weights.at(fmt::format("{}{}.weight", prefix, i)));
    return maps;
}

Tensor all_streams(const Tensor& one, std::int64_t streams, std::string_view name) {
    return one.device().empty({one.shape()[0], streams * one.shape()[1]}, one.dtype(), MemoryCategory::activations, name);
}

}  // namespace

StreamEntry::StreamEntry(std::int64_t streams, const WeightTable& weights)
    : streams_(streams), maps_(maps_of(streams, weights, "embedding.streams.")) {}

Tensor StreamEntry::forward(const RankContext& context, const Tensor& x, StreamEndSaved& saved) const {
    saved.x = x;
    Tensor all = all_streams(x, streams_, "residual stream");
    copy(x, stream_of(all, streams_, 0));
    for (std::int64_t i = 1; i < streams_; ++i) {
        const Tensor& projected = saved.projected.emplace_back(maps_[static_cast<std::size_t>(i - 1)].forward(context, x));
        match_lengths(projected, x, stream_of(all, streams_, i));
    }
    return all;
}

Tensor StreamEntry::backward(const RankContext& context, const Tensor& dy, StreamEndSaved& saved) const {
    Tensor dx = dy.device().empty(saved.x.shape(), saved.x.dtype(), MemoryCategory::activations, "embedding output gradient");
    copy(stream_of(dy, streams_, 0), dx);
    for (std::int64_t i = 1; i < streams_; ++i) {
        const auto map = static_cast<std::size_t>(i - 1);
        const Tensor d_projected = match_lengths_backward(stream_of(dy, streams_, i), saved.projected[map], saved.x, dx);
        saved.projected[map] = {};
        add(maps_[map].backward(context, d_projected, saved.x), dx);
    }
    saved = {};
    return dx;
}

StreamExit::StreamExit(std::int64_t streams, const WeightTable& weights)
    : streams_(streams), maps_(maps_of(streams, weights, "decoder.stream_exit.")) {}

Tensor StreamExit::forward(const RankContext& context, const Tensor& x, StreamEndSaved& saved) const {
    saved.x = x;
    const Tensor first = stream_of(x, streams_, 0), all = all_streams(first, streams_, "streams of one length");
    copy(first, stream_of(all, streams_, 0));
    for (std::int64_t i = 1; i < streams_; ++i) {
        const Tensor& projected =
            saved.projected.emplace_back(maps_[static_cast<std::size_t>(i - 1)].forward(context, stream_of(x, streams_, i)));
        match_lengths(projected, first, stream_of(all, streams_, i));
    }
    return sum_of_streams(all, streams_, "mean of streams");
}

Tensor StreamExit::backward(const RankContext& context, const Tensor& dy, StreamEndSaved& saved) const {
    const Tensor first = stream_of(saved.x, streams_, 0);
    Tensor dx = all_streams(dy, streams_, "residual stream gradient");
    const Tensor d_first = stream_of(dx, streams_, 0);
    copy(dy, d_first);
    for (std::int64_t i = 1; i < streams_; ++i) {
        const auto map = static_cast<std::size_t>(i - 1);
        const Tensor d_projected = match_lengths_backward(dy, saved.projected[map], first, d_first);
        saved.projected[map] = {};
        copy(maps_[map].backward(context, d_projected, stream_of(saved.x, streams_, i)), stream_of(dx, streams_, i));
    }
    saved = {};
    return dx;
}

StreamEnds::StreamEnds(const ModelSpec& model, const WeightTable& weights, bool begin, bool end) : streams_(model.streams()) {
    const bool projects = streams_ > 1 && !model.hyper_connections;
    if (projects && begin) entry_.emplace(streams_, weights);
    if (projects && end) exit_.emplace(streams_, weights);
    if (model.hyper_connections && end) head_.emplace(model, weights);
}

Tensor StreamEnds::split(const RankContext& context, const Tensor& x, StreamEndsSaved& saved) const {
    if (entry_) return entry_->forward(context, x, saved.entry);
    return streams_ > 1 ? copy_to_streams(x, streams_) : x;
}

Tensor StreamEnds::split_backward(const RankContext& context, const Tensor& dy, StreamEndsSaved& saved) const {
    if (entry_) return entry_->backward(context, dy, saved.entry);
    return streams_ > 1 ? sum_of_streams(dy, streams_, "embedding output gradient") : dy;
}

Tensor StreamEnds::join(const RankContext& context, const Tensor& x, StreamEndsSaved& saved) const {
    if (exit_) return exit_->forward(context, x, saved.exit);
    return head_ ? head_->forward(context, x, saved.head) : x;
}

Tensor StreamEnds::join_backward(const RankContext& context, const Tensor& dy, StreamEndsSaved& saved) const {
    if (exit_) return exit_->backward(context, dy, saved.exit);
    return head_ ? head_->backward(context, dy, saved.head) : dy;
}

}  // namespace mgplan::model
