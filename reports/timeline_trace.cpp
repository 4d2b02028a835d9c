#include "reports/timeline_trace.hpp"

#include <array>
#include <iterator>
#include <string_view>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

namespace mgplan::reports {
namespace {

/// In the order of simulator::Stream.
constexpr std::array<std::string_view, 6> kThreads{"compute", "tp", "cp", "ep", "dp", "p2p"};

std::string quoted(std::string_view text) {
    return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

class Writer {
public:
    explicit Writer(std::ostream& out) : out_(out) { text_ = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":["; }
    ~Writer() {
        text_ += "\n]}\n";
        flush();
    }
    Writer(const Writer&) = delete;
    Writer& operator=(const Writer&) = delete;

    void name(std::string_view what, int process, int thread, std::string_view name) {
        begin();
        fmt::format_to(std::back_inserter(text_), R"({{"ph":"M","name":"{}","pid":{},"tid":{},"args":{{"name":{}}}}})", what, process,
                       thread, quoted(name));
    }
    void order(std::string_view what, int process, int thread, int index) {
        begin();
        fmt::format_to(std::back_inserter(text_), R"({{"ph":"M","name":"{}","pid":{},"tid":{},"args":{{"sort_index":{}}}}})", what, process,
                       thread, index);
    }
    /// The slice's name must contain no character that JSON escapes.
    void slice(const simulator::TraceSlice& slice) {
        begin();
        fmt::format_to(std::back_inserter(text_), R"({{"ph":"X","name":"{}","cat":"{}","pid":{},"tid":{},"ts":{:.3f},"dur":{:.3f}}})",
                       slice.name, kThreads[static_cast<std::size_t>(slice.stream)], slice.rank, static_cast<int>(slice.stream),
                       slice.begin * 1e6, (slice.end - slice.begin) * 1e6);
    }
    void counter(const simulator::TraceMemory& memory) {
        begin();
        fmt::format_to(std::back_inserter(text_), R"({{"ph":"C","name":"memory","pid":{},"ts":{:.3f},"args":{{"bytes":{}}}}})", memory.rank,
                       memory.at * 1e6, memory.bytes);
    }

private:
    void begin() {
        text_ += first_ ? "\n" : ",\n";
        first_ = false;
        if (text_.size() > (1U << 18U)) flush();
    }
    void flush() {
        out_.write(text_.data(), static_cast<std::streamsize>(text_.size()));
        text_.clear();
    }
    std::ostream& out_;
    std::string text_;
    bool first_ = true;
};

}  // namespace

void write_timeline_trace(std::ostream& out, const simulator::TimelineTrace& trace, const std::string& title) {
    Writer writer(out);
    for (int r = 0; r < trace.ranks; ++r) {
        std::string name = fmt::format("pipeline rank {}", r);
        if (r == 0) name += ": " + title;
        if (r == 0 && trace.left_out_end > trace.left_out_begin)
            name += fmt::format(" (microbatches {} to {} are left out)", trace.left_out_begin, trace.left_out_end - 1);
        writer.name("process_name", r, 0, name);
        writer.order("process_sort_index", r, 0, r);
        for (std::size_t t = 0; t < kThreads.size(); ++t) {
            writer.name("thread_name", r, static_cast<int>(t), kThreads[t]);
            writer.order("thread_sort_index", r, static_cast<int>(t), static_cast<int>(t));
        }
    }
    for (const auto& slice : trace.slices) writer.slice(slice);
    for (const auto& memory : trace.memory) writer.counter(memory);
}

}  // namespace mgplan::reports
