#include "model/pipeline/pipeline_executor.hpp"

#include "model/graphs/layer_graphs.hpp"
#include "plan/graphs/graph_slots.hpp"
#include "plan/text/errors.hpp"

namespace mgplan::model {
PipelineExecutor::PipelineExecutor(const ModelSpec& model, const RankContext& context, std::vector<ModelChunk*> chunks,
                                   const PipelineChannels& channels, const LayoutSchedule& schedule)
    : model_(model),
      context_(context),
      chunks_(std::move(chunks)),
      channels_(channels),
      v_shaped_(schedule.v_shaped()),
      depth_(send_depth(schedule, channels.forward->rank())) {
    const int rank = channels_.forward->rank();
    MGPLAN_ASSERT(channels_.forward->size() == schedule.pp() && std::ssize(chunks_) == schedule.chunks(),
                  "the schedule is this pipeline's");
    for (int chunk = 0; chunk < schedule.chunks(); ++chunk)
        neighbours_.push_back({schedule.rank_before(rank, chunk), schedule.rank_behind(rank, chunk)});
}

Tensor PipelineExecutor::stream(const MicrobatchContext& microbatch, std::string_view name) const {
    std::int64_t rows = microbatch.batch * microbatch.sequence / context_.cp->size();
    if (context_.sequence_parallel) rows /= context_.tp->size();
    return context_.device->empty({rows, model_.stream_width()}, context_.dtype, MemoryCategory::communication, name);
}

void PipelineExecutor::send(Communicator& channel, const Tensor& tensor, int peer, std::deque<Sent>& open, std::int64_t depth) {
    if (std::ssize(open) == depth) {
        open.front().pending->wait();
        open.pop_front();
    }
    open.push_back({channel.start_send(tensor, peer), tensor});
}

Tensor PipelineExecutor::take(bool forward, int peer, const Microbatch& microbatch, std::int64_t index) {
    Communicator& channel = forward ? *channels_.forward : *channels_.backward;
    if (peer == channel.rank()) {
        auto& handed = handed_over_[forward ? 0 : 1];
        const auto found = handed.find(index);
        MGPLAN_ASSERT(found != handed.end(), "a pass follows the one that makes its input");
        Tensor tensor = std::move(found->second);
        handed.erase(found);
        return tensor;
    }
    Tensor tensor = stream(microbatch.context, forward ? "received activations" : "received gradients");
    channel.receive(tensor, peer);
    return tensor;
}

void PipelineExecutor::pass_on(bool forward, int chunk, int peer, const Tensor& tensor, std::int64_t index) {
    Communicator& channel = forward ? *channels_.forward : *channels_.backward;
    if (peer == channel.rank())
        handed_over_[forward ? 0 : 1].emplace(index, tensor);
    else
        send(channel, tensor, peer, open(forward, chunk), forward ? depth_.forward : depth_.backward);
}

std::vector<std::int32_t> PipelineExecutor::slots(const RankSchedule& schedule) const {
    if (context_.graphs == nullptr) return {};
    std::vector<GraphedChunk> chunks;
    for (const ModelChunk* chunk : chunks_) chunks.push_back({{0, chunk->captured_layers(context_)}});
    return plan_slots(schedule, chunks).slot;
}

void PipelineExecutor::forward(int chunk, std::int64_t index, std::int64_t slot, const std::function<Microbatch(std::int64_t)>& source) {
    const Range range(*context_.device, "chunk forward", chunk);
    ModelChunk& part = *chunks_[static_cast<std::size_t>(chunk)];
    const auto [entry, fresh] = in_flight_.try_emplace({chunk, index});
    MGPLAN_ASSERT(fresh, "a microbatch goes forward through a chunk once");
    InFlight& flight = entry->second;
    flight.microbatch = source(index);
    flight.microbatch.context.slot = slot;
    if (context_.graphs != nullptr) flight.microbatch.context.changing = context_.graphs->changing();
    const MicrobatchContext& microbatch = flight.microbatch.context;
    const Neighbours& peers = neighbours_[static_cast<std::size_t>(chunk)];
    Tensor input = flight.microbatch.ids;
    if (!part.contents().embedding) input = take(true, peers.before, flight.microbatch, index);
    if (context_.graphs != nullptr) context_.graphs->write_changing(microbatch.dropout_seed, microbatch.first_sequence);
    Tensor output = part.forward(context_, microbatch, input, flight.microbatch.targets, flight.saved);
    if (part.contents().loss)
        add_sum_of_losses(output, context_.losses, 0);
    else
        pass_on(true, chunk, peers.behind, output, index);
}

void PipelineExecutor::backward(int chunk, std::int64_t index, double d_loss, bool divided) {
    const Range range(*context_.device, "chunk backward", chunk);
    ModelChunk& part = *chunks_[static_cast<std::size_t>(chunk)];
    const auto entry = in_flight_.find({chunk, index});
    MGPLAN_ASSERT(entry != in_flight_.end(), "a backward follows its forward");
    InFlight& flight = entry->second;
    const Neighbours& peers = neighbours_[static_cast<std::size_t>(chunk)];
    Tensor gradient;
    if (!part.contents().loss) gradient = take(false, peers.behind, flight.microbatch, index);
    if (context_.graphs != nullptr)
        context_.graphs->write_changing(flight.microbatch.context.dropout_seed, flight.microbatch.context.first_sequence);
    if (divided) context_.deferred = &deferred_[{chunk, index}];
    const Tensor d_input = part.backward(context_, flight.microbatch.context, std::move(gradient), d_loss, flight.microbatch.ids,
                                         flight.microbatch.targets, flight.saved);
    context_.deferred = nullptr;
    if (!part.contents().embedding) pass_on(false, chunk, peers.before, d_input, index);
    in_flight_.erase(entry);
}

void PipelineExecutor::weight_gradient(int chunk, std::int64_t index) {
    const Range range(*context_.device, "chunk weight gradient", chunk);
    const auto entry = deferred_.find({chunk, index});
    MGPLAN_ASSERT(entry != deferred_.end(), "weight gradients follow the input's");
    entry->second.run();
    deferred_.erase(entry);
}

void PipelineExecutor::run(const RankSchedule& schedule, const std::function<Microbatch(std::int64_t)>& source, double d_loss) {
    const std::vector<std::int32_t> slots_of_order = slots(schedule);
    for (std::size_t i = 0; i < schedule.ops.size(); ++i) {
        const PipelineOp& op = schedule.ops[i];
        switch (op.pass) {
            case Pass::forward:
                forward(op.chunk, op.microbatch, slots_of_order.empty() ? 0 : slots_of_order[i], source);
                break;
            case Pass::backward:
            case Pass::input_gradient:
                backward(op.chunk, op.microbatch, d_loss, op.pass == Pass::input_gradient);
                break;
            case Pass::weight_gradient:
                weight_gradient(op.chunk, op.microbatch);
                break;
        }
    }
    for (auto& channel : sent_) {
        for (auto& open : channel) {
            for (Sent& sent : open) sent.pending->wait();
            open.clear();
        }
    }
    MGPLAN_ASSERT(in_flight_.empty() && deferred_.empty(), "every forward was followed by all of its backward");
}

}  // namespace mgplan::model
