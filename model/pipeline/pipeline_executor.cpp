#include "model/pipeline/pipeline_executor.hpp"

#include "model/graphs/layer_graphs.hpp"
#include "plan/errors.hpp"
#include "plan/graph_slots.hpp"

namespace mgplan::model {
PipelineExecutor::PipelineExecutor(const ModelSpec& model, const RankContext& context, std::vector<ModelChunk*> chunks,
                                   const PipelineChannels& channels, const SendDepth& depth)
    : model_(model), context_(context), chunks_(std::move(chunks)), channels_(channels), depth_(depth) {}

Tensor PipelineExecutor::stream(const MicrobatchContext& microbatch, std::string_view name) const {
    std::int64_t rows = microbatch.batch * microbatch.sequence / context_.cp->size();
    if (context_.sequence_parallel) rows /= context_.tp->size();
    return context_.device->empty({rows, model_.hidden}, context_.dtype, MemoryCategory::communication, name);
}

void PipelineExecutor::send(Communicator& channel, const Tensor& tensor, int peer, std::deque<Sent>& open, std::int64_t depth) {
    if (std::ssize(open) == depth) {
        open.front().pending->wait();
        open.pop_front();
    }
    open.push_back({channel.start_send(tensor, peer), tensor});
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
    const int pp = channels_.forward->size(), rank = channels_.forward->rank();
    Tensor input = flight.microbatch.ids;
    if (!part.contents().embedding) {
        input = stream(microbatch, "received activations");
        channels_.forward->receive(input, (rank + pp - 1) % pp);
    }
    if (context_.graphs != nullptr) context_.graphs->write_changing(microbatch.dropout_seed, microbatch.first_sequence);
    const Tensor output = part.forward(context_, microbatch, input, flight.microbatch.targets, flight.saved);
    if (part.contents().loss)
        add_sum_of_losses(output, context_.losses, 0);
    else
        send(*channels_.forward, output, (rank + 1) % pp, sent_forward_, depth_.forward);
}

void PipelineExecutor::backward(int chunk, std::int64_t index, double d_loss) {
    const Range range(*context_.device, "chunk backward", chunk);
    ModelChunk& part = *chunks_[static_cast<std::size_t>(chunk)];
    const auto entry = in_flight_.find({chunk, index});
    MGPLAN_ASSERT(entry != in_flight_.end(), "a backward follows its forward");
    InFlight& flight = entry->second;
    const int pp = channels_.backward->size(), rank = channels_.backward->rank();
    Tensor gradient;
    if (!part.contents().loss) {
        gradient = stream(flight.microbatch.context, "received gradients");
        channels_.backward->receive(gradient, (rank + 1) % pp);
    }
    if (context_.graphs != nullptr)
        context_.graphs->write_changing(flight.microbatch.context.dropout_seed, flight.microbatch.context.first_sequence);
    const Tensor d_input = part.backward(context_, flight.microbatch.context, std::move(gradient), d_loss, flight.microbatch.ids,
                                         flight.microbatch.targets, flight.saved);
    if (!part.contents().embedding) send(*channels_.backward, d_input, (rank + pp - 1) % pp, sent_backward_, depth_.backward);
    in_flight_.erase(entry);
}

void PipelineExecutor::run(const RankSchedule& schedule, const std::function<Microbatch(std::int64_t)>& source, double d_loss) {
    const std::vector<std::int32_t> slots_of_order = slots(schedule);
    for (std::size_t i = 0; i < schedule.order.size(); ++i) {
        const int op = schedule.order[i];
        const std::int64_t index = schedule.microbatch[i];
        if (op > 0)
            forward(op - 1, index, slots_of_order.empty() ? 0 : slots_of_order[i], source);
        else
            backward(-op - 1, index, d_loss);
    }
    for (auto* open : {&sent_forward_, &sent_backward_}) {
        for (Sent& sent : *open) sent.pending->wait();
        open->clear();
    }
    MGPLAN_ASSERT(in_flight_.empty(), "every forward was followed by its backward");
}

}  // namespace mgplan::model
