#include "model/layers/chunk_sections.hpp"

#include <charconv>
#include <cstdint>
#include <string_view>

#include "plan/text/errors.hpp"

namespace mgplan::model {

int section_of(const StageChunk& chunk, const std::string& parameter) {
    constexpr std::string_view kDecoder = "decoder.layers.";
    MGPLAN_ASSERT(!parameter.starts_with("mtp."), "sections are of chunks without multi-token prediction");
    if (parameter.starts_with("embedding.")) return 0;
    if (!parameter.starts_with(kDecoder)) return sections_of(chunk) - 1;
    std::int64_t layer = -1;
    const auto error = std::from_chars(parameter.data() + kDecoder.size(), parameter.data() + parameter.size(), layer).ec;
    layer -= chunk.first_decoder;
    MGPLAN_ASSERT(error == std::errc{} && layer >= 0 && layer < chunk.decoders, "the parameter is of one of the chunk's layers");
    return 1 + static_cast<int>(layer);
}

}  // namespace mgplan::model
