#include "simulator/piece/piece_recorder.hpp"

#include "plan/text/errors.hpp"

namespace mgplan::simulator {
namespace {

LayerGroup layer_group(std::string_view name) {
    if (name == "tp") return LayerGroup::tp;
    if (name == "cp") return LayerGroup::cp;
    if (name == "expert:ep") return LayerGroup::ep;
    if (name == "expert:tp") return LayerGroup::etp;
    MGPLAN_ASSERT(name == "tp-cp", "a group of one layer's ranks");
    return LayerGroup::tp_cp;
}

bool is_message(model::CollectiveKind kind) {
    return kind == model::CollectiveKind::send || kind == model::CollectiveKind::receive;
}

bool recomputes(std::string_view range) {
    return range == "recompute";
}

bool routes(std::string_view range) {
    return range.starts_with("router");
}

bool gates(std::string_view range) {
    return range.starts_with("gate");
}

bool keeps_storage_type(std::string_view range) {
    return range == "16 bits";
}

}  // namespace

PieceStep PieceRecorder::step(StepKind kind) const {
    PieceStep step;
    step.kind = kind;
    step.router = routers_ > 0;
    step.gate = gates_ > 0;
    step.unquantised = unquantised_ > 0;
    // Recomputed forwards are inside of backwards.
    if (recomputes_ > 0)
        step.pass = StepPass::recompute;
    else if (backwards_ > 0)
        step.pass = StepPass::input_gradient;
    return step;
}

void PieceRecorder::on_op(const model::OpRecord& record) {
    if (!keep_steps_ || (record.name == "zero" && !keep_zeros_)) return;
    PieceStep done = step(StepKind::op);
    done.op = record;
    if (done.pass == StepPass::input_gradient && (record.product.accumulate || record.grouped.accumulate))
        done.pass = StepPass::weight_gradient;
    steps_.push_back(done);
}

void PieceRecorder::on_range_begin(std::string_view name, std::int64_t number) {
    RecordedRange range;
    range.name = name;
    range.number = number;
    range.begin = device_.clock();
    range.depth = static_cast<int>(open_.size());
    range.first_step = steps_.size();
    open_.push_back(ranges_.size());
    ranges_.push_back(range);
    recomputes_ += recomputes(name) ? 1 : 0;
    routers_ += routes(name) ? 1 : 0;
    gates_ += gates(name) ? 1 : 0;
    unquantised_ += keeps_storage_type(name) ? 1 : 0;
    backwards_ += name.ends_with("backward") ? 1 : 0;
}

void PieceRecorder::on_range_end() {
    RecordedRange& range = ranges_[open_.back()];
    range.end = device_.clock();
    range.end_step = steps_.size();
    recomputes_ -= recomputes(range.name) ? 1 : 0;
    routers_ -= routes(range.name) ? 1 : 0;
    gates_ -= gates(range.name) ? 1 : 0;
    unquantised_ -= keeps_storage_type(range.name) ? 1 : 0;
    backwards_ -= range.name.ends_with("backward") ? 1 : 0;
    open_.pop_back();
}

void PieceRecorder::on_collective(const model::CollectiveRecord& record) {
    const LayerGroup group = layer_group(record.group);
    auto& starts = starts_[static_cast<std::size_t>(group)];
    const bool message = is_message(record.kind), receives = record.kind == model::CollectiveKind::receive;
    if (message && !steps_.empty() && steps_.back().kind == StepKind::start && steps_.back().group == group &&
        is_message(steps_.back().collective)) {
        // Messages that start together travel together, receives in parallel with sends.
        (receives ? steps_.back().received : steps_.back().sent) += record.payload_bytes;
        starts.push_back(steps_.size() - 1);
        return;
    }
    PieceStep start = step(StepKind::start);
    start.group = group;
    start.number = collectives_++;
    start.collective = record.kind;
    start.sent = receives ? 0 : record.payload_bytes;
    start.received = record.received_bytes >= 0 ? record.received_bytes : message && !receives ? 0 : record.payload_bytes;
    starts.push_back(steps_.size());
    steps_.push_back(start);
}

void PieceRecorder::on_wait(std::string_view group, std::int64_t number) {
    const auto& starts = starts_[static_cast<std::size_t>(layer_group(group))];
    // Messages that travel together are waited for one by one: one wait step is enough.
    const bool again = !steps_.empty() && steps_.back().kind == StepKind::wait &&
                       steps_.back().number == steps_[starts[static_cast<std::size_t>(number)]].number;
    if (again) return;
    steps_.push_back(PieceStep::wait_for(steps_[starts[static_cast<std::size_t>(number)]]));
    steps_.back().pass = step(StepKind::wait).pass;
}

}  // namespace mgplan::simulator
