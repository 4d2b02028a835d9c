file(GLOB files ${FOLDER}/*.json ${FOLDER}/*.css ${FOLDER}/*.html ${FOLDER}/*.js)
list(SORT files)
set(entries "")
set(count 0)
foreach(file IN LISTS files)
  get_filename_component(name ${file} NAME)
  string(REGEX REPLACE "\\.json$" "" name "${name}")
  file(READ ${file} text)
  string(APPEND entries "    EmbeddedFile{\"${name}\", R\"file~(${text})file~\"sv},\n")
  math(EXPR count "${count} + 1")
endforeach()
file(WRITE ${OUTPUT} "#include \"plan/text/embedded_files.hpp\"

#include <array>

namespace mgplan {
namespace {

using namespace std::string_view_literals;  // a long text states its length, so that no compiler counts it

constexpr std::array<EmbeddedFile, ${count}> k_${FUNCTION}{{
${entries}}};

}  // namespace

std::span<const EmbeddedFile> ${FUNCTION}() {
    return k_${FUNCTION};
}

}  // namespace mgplan
")
